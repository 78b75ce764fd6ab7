#pragma once

#include <cstdint>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/kernels/cuda/linear/device/skinny.h"

// The linear layers that bench_cuda_linear measures.
namespace braid::cuda {

struct DeviceArray {
  uint8_t* data = nullptr;
  size_t size = 0;
  explicit DeviceArray(size_t bytes) : size(bytes) {
    check_cuda(cudaMalloc(&data, bytes), "bench");
  }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
};

struct Layer {
  const char* name;
  int k;
  std::vector<int> n;
  bool gated = false;
  bool residual = false;
  int64_t columns() const {
    int64_t sum = 0;
    for (int part : n) sum += part;
    return sum;
  }
  int64_t bytes(DType dtype) const { return columns() * bytes_of(dtype, k); }
};

// Llama-2-7B; 22016 rows of gate and up.
inline const Layer kLayers[] = {{"qkv", 4096, {4096, 4096, 4096}},
                                {"o", 4096, {4096}, false, true},
                                {"gate_up", 4096, {11008, 11008}, true},
                                {"down", 11008, {4096}, false, true}};
inline const Layer kHead = {"head", 4096, {32000}};
// Llama-3-8B, where it differs.
inline const Layer kLayers8B[] = {{"8B qkv", 4096, {4096, 1024, 1024}},
                                  {"8B gate_up", 4096, {14336, 14336}, true},
                                  {"8B down", 14336, {4096}, false, true},
                                  {"8B head", 4096, {128256}}};

// x bf16, or the norm of an f32 stream; y bf16, or f32 with the residual added.
struct Buffers {
  DeviceArray x{size_t{64} * 14336 * 4}, y{size_t{64} * 128256 * 4}, unit{14336 * 4};
};

inline SkinnyParams make_params(const Layer& layer, DType dtype, const uint8_t* w, int m,
                                const Buffers& b, bool fused) {
  SkinnyParams p;
  p.k = layer.k;
  p.m = m;
  p.x = b.x.data;
  p.x_stride = layer.k;
  p.num_parts = static_cast<int>(layer.n.size());
  p.gated = layer.gated;
  if (fused && !layer.residual) {
    p.normed = true;
    p.norm.a = reinterpret_cast<const float*>(b.x.data);
    p.norm.a_stride = layer.k;
    p.norm.w = b.unit.data;
    p.norm.w_dtype = DType::bf16;
  }
  if (fused && layer.residual) {
    p.residual = reinterpret_cast<const float*>(b.y.data);
    p.residual_stride = layer.n[0];
  }
  int64_t column = 0;
  for (int i = 0; i < p.num_parts; ++i) {
    SkinnyPart& part = p.parts[i];
    part.w = w;
    part.dtype = dtype;
    part.row_bytes = bytes_of(dtype, layer.k);
    part.n = layer.n[i];
    part.y = b.y.data + column * m * 4;
    part.y_dtype = p.residual != nullptr ? DType::f32 : DType::bf16;
    part.y_stride = layer.n[i];
    w += layer.n[i] * part.row_bytes;
    column += layer.n[i];
  }
  return p;
}

}  // namespace braid::cuda
