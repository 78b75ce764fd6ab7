#pragma once

#include <cuda_runtime.h>

#include <memory>

#include <string>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/kernels/cuda/decode/device/launch.h"

// Paged-attention problems: random queries and keys in a cache whose unused slots are NaN, and the
// op's scalar reference on host copies.
namespace braid::cuda::test {

template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t n) : n_(n) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T) + 16), "test memory");
  }
  explicit DeviceBuffer(const std::vector<T>& host) : DeviceBuffer(host.size()) { upload(host); }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return data_; }
  void upload(const std::vector<T>& host) {
    check_cuda(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
               "upload");
  }
  std::vector<T> download() const {
    std::vector<T> host(n_);
    check_cuda(cudaMemcpy(host.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return host;
  }
  void fill(int byte) { check_cuda(cudaMemset(data_, byte, n_ * sizeof(T)), "fill"); }

 private:
  T* data_ = nullptr;
  size_t n_;
};

struct Lengths {
  int q_len;
  int kv_len;
};

struct DecodeSpec {
  int q_heads = 1;
  int kv_heads = 1;  // of the cache
  ops::AttentionAttrs attrs;
  DType cache_dtype = DType::bf16;
  DType q_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  int page_size = 64;
  std::vector<Lengths> live;
  int spare_sequences = 0;  // of the capacity, beyond the live ones
  int spare_tokens = 0;
  uint64_t seed = 1;
};

class DecodeCase {
 public:
  explicit DecodeCase(const DecodeSpec& spec);

  const DecodeDesc& desc() const { return desc_; }
  // `config`'s workspace is made anew, zero, when it changes.
  DecodeParams params(const DecodeConfig& config);
  void run(const DecodeConfig& config, LaunchContext context = {});
  // Empty, or what is wrong with the last output: a row that is not the reference's within the
  // rounding of the weights and of the output, a row beyond the live ones that was written, a
  // workspace that is not as it was.
  std::string check() const;
  std::vector<std::byte> output() const { return out_.download(); }
  void poison_output() { out_.fill(0xff); }

  // The reference with other attributes than the kernel's: to see that `check` tells them apart.
  void set_reference(const ops::AttentionAttrs& attrs);

  // The slots and rows of the new tokens, for tests in which an earlier kernel writes them.
  std::vector<int64_t> new_slots() const { return new_slots_; }
  DeviceBuffer<std::byte>& q() { return q_; }
  DeviceBuffer<std::byte>& k() { return k_; }
  DeviceBuffer<std::byte>& v() { return v_; }
  DeviceBuffer<int32_t>& q_start() { return q_start_; }
  DeviceBuffer<int32_t>& kv_len() { return kv_len_; }
  DeviceBuffer<int32_t>& page_table() { return page_table_; }
  DeviceBuffer<int64_t>& live_sequences() { return sequences_; }
  DeviceBuffer<std::byte>& out() { return out_; }
  int64_t pages() const { return pages_; }

 private:
  struct Host;
  static Host make_host(const DecodeSpec& spec);
  DecodeCase(const DecodeSpec& spec, Host host);

  DecodeSpec spec_;
  DecodeDesc desc_;
  std::vector<std::byte> host_q_, host_k_, host_v_;
  std::vector<int32_t> host_q_start_, host_kv_len_, host_page_table_;
  std::vector<int64_t> new_slots_;
  std::vector<float> reference_;  // [live tokens, Hq * D]
  int64_t pages_;
  int64_t live_tokens_;
  DeviceBuffer<std::byte> q_, k_, v_, out_;
  DeviceBuffer<int32_t> q_start_, kv_len_, page_table_;
  DeviceBuffer<int64_t> sequences_;
  std::unique_ptr<DeviceBuffer<std::byte>> workspace_;
  DecodeConfig workspace_of_;
};

}  // namespace braid::cuda::test
