#include "braid/kernels/cuda/linear/device/skinny.h"

#include <algorithm>

#include "braid/backend/cuda/device.h"
#include "braid/kernels/cuda/linear/device/skinny_args.h"
#include "braid/kernels/cuda/linear/device/with_dtype.h"
#include "braid/ops/linear.h"

namespace braid::cuda {
namespace {

void verify(const SkinnyParams& p) {
  const auto bad = [](const char* what, auto value, const char* allowed) {
    fail(ErrorCode::kInvalidArgument, "linear: {} = {} ({})", what, value, allowed);
  };
  if (p.k < 1) bad("k", p.k, "at least 1");
  if (p.m < 1) bad("m", p.m, "at least 1");
  if (p.num_parts < 1 || p.num_parts > 3) bad("num_parts", p.num_parts, "1 to 3");
  for (int i = 0; i < p.num_parts; ++i) {
    const SkinnyPart& part = p.parts[i];
    if (part.n < 1) bad("n", part.n, "at least 1");
    if (part.dtype == DType::i32) bad("weight dtype", name(part.dtype), "a float or block type");
    if (p.k % info(part.dtype).block_elems != 0) bad("k", p.k, "whole blocks of the weight");
    if (part.bias != nullptr && !is_float(part.bias_dtype)) {
      bad("bias dtype", name(part.bias_dtype), "a float type");
    }
    if (p.gated && i > 0) continue;
    if (part.y_dtype != DType::bf16 && part.y_dtype != DType::f32) {
      bad("y dtype", name(part.y_dtype), "bf16, f32");
    }
  }
  if (!p.normed && p.x_dtype != DType::bf16 && p.x_dtype != DType::f32) {
    bad("x dtype", name(p.x_dtype), "bf16, f32");
  }
  if (p.normed && (p.norm.a == nullptr || p.norm.w == nullptr || !is_float(p.norm.w_dtype))) {
    bad("norm weight dtype", name(p.norm.w_dtype), "a float type, with a and w given");
  }
  if (p.gated && (p.num_parts != 2 || p.parts[0].n != p.parts[1].n)) {
    bad("gated parts", p.num_parts, "two of equal n");
  }
  if (p.gated && p.parts[0].dtype != p.parts[1].dtype) {
    fail(ErrorCode::kUnsupported, "gated linear: weights of {} and {} (one dtype)",
         name(p.parts[0].dtype), name(p.parts[1].dtype));
  }
  if (p.residual != nullptr && (p.num_parts != 1 || p.gated || p.parts[0].y_dtype != DType::f32)) {
    bad("num_parts", p.num_parts, "1, ungated, y f32 with a residual");
  }
}

// Bytes by which every row is aligned, up to 16.
int row_alignment(const SkinnyPart& part) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(part.w) | part.row_bytes | 16;
  return static_cast<int>(bits & -bits);
}

// Alignment needed by the loads of a block's layout.
int block_alignment(DType dtype) {
  switch (dtype) {
    case DType::q4_1:
    case DType::q5_1:
      return 4;
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0:
    case DType::q6_k:
      return 2;
    default:
      return 16;
  }
}

}  // namespace

SkinnyShape skinny_shape(const SkinnyParams& p) {
  SkinnyShape shape;
  shape.dtype = p.parts[0].dtype;
  shape.k = p.k;
  shape.m = p.m;
  shape.gated = p.gated;
  for (int i = 0; i < p.num_parts; ++i) {
    if (!p.gated || i == 0) shape.columns += p.parts[i].n;
    const int alignment = row_alignment(p.parts[i]);
    shape.aligned = shape.aligned && alignment == 16;
    // Loads of floats are 16 bytes wide, and data behind a row in the last step must be zeros.
    shape.bulk = shape.bulk && alignment >= block_alignment(shape.dtype) && p.k % 32 == 0;
  }
  // Chunks begin at multiples of 256 elements and, in a cluster, at granules.
  for (int elems : {256, skinny_granule(shape.dtype)}) {
    if (bytes_of(shape.dtype, elems) % 16 != 0) shape.aligned = false;
  }
  return shape;
}

void prepare_skinny_linear() {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype != DType::i32) with_dtype(dtype, []<DType kType>() { allow_skinny_smem<kType>(); });
  }
}

void skinny_linear(const SkinnyParams& params, const SkinnyConfig& config, LaunchContext context) {
  verify(params);
  const SkinnyShape shape = skinny_shape(params);
  for (int i = 1; i < params.num_parts; ++i) {
    if (params.parts[i].dtype == shape.dtype) continue;
    fail(ErrorCode::kUnsupported, "linear: weights of {} and {} in one launch (one dtype)",
         name(shape.dtype), name(params.parts[i].dtype));
  }
  int device = 0, most = 0;
  check_cuda(cudaGetDevice(&device), "device");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "device");
  BRAID_CHECK(
      skinny_fits(shape, config, {.compute_capability = code_capability(), .smem_per_cta = most}),
      "config {}", to_string(config));
  SkinnyArgs args;
  args.p = params;
  args.smem = skinny_smem(shape, config);
  args.units = static_cast<int>(shape.columns);
  args.cluster = config.cluster;
  args.k_per_cta = static_cast<int>(skinny_k_per_cta(shape, config.cluster));
  args.stages = config.stages;
  args.split_k = config.split_k;
  args.chunk = config.chunk;
  args.bulk = config.bulk;
  args.gelu = params.activation == ops::Activation::gelu_tanh;
  args.aligned = shape.aligned;
  for (args.row_begin = 0; args.row_begin < params.m; args.row_begin += config.tokens) {
    args.tokens = std::min(config.tokens, params.m - args.row_begin);
    args.p.m = args.row_begin + args.tokens;
    with_dtype(shape.dtype,
               [&]<DType kType>() { launch_skinny<kType>(args, config.clusters, context); });
  }
}

}  // namespace braid::cuda
