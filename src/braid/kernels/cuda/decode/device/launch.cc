#include "braid/kernels/cuda/decode/device/launch.h"

#include <algorithm>
#include <bit>

#include "braid/backend/cuda/device.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/device/instances.h"

namespace braid::cuda {
namespace {

DecodeKernel find_kernel(const DecodeDesc& desc) {
  switch (desc.attrs.head_dim) {
    case 64:
      return decode_kernel_of<64>(desc.cache_dtype);
    case 96:
      return decode_kernel_of<96>(desc.cache_dtype);
    case 128:
      return decode_kernel_of<128>(desc.cache_dtype);
    default:
      return decode_kernel_of<256>(desc.cache_dtype);
  }
}

void require_pointer(const void* p, const char* what, uintptr_t alignment) {
  if (p == nullptr || reinterpret_cast<uintptr_t>(p) % alignment != 0) {
    fail(ErrorCode::kInvalidArgument, "decode attention: {} is null or not {}-byte aligned", what,
         alignment);
  }
}

int64_t checked_stride(int64_t stride, int64_t packed, const char* what) {
  if (stride == 0) return packed;
  if (stride < packed || stride % 8 != 0) {
    fail(ErrorCode::kInvalidArgument,
         "decode attention: {} rows are {} elements apart (at least {}, a multiple of 8)", what,
         stride, packed);
  }
  return stride;
}

}  // namespace

DecodeDevice decode_device() {
  int device = 0;
  DecodeDevice out;
  check_cuda(cudaGetDevice(&device), "decode attention: device");
  check_cuda(cudaDeviceGetAttribute(&out.num_sms, cudaDevAttrMultiProcessorCount, device),
             "decode attention: SM count");
  check_cuda(
      cudaDeviceGetAttribute(&out.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
      "decode attention: shared memory");
  out.compute_capability = code_capability();
  return out;
}

void prepare_decode_attention(const DecodeDesc& desc, const DecodeConfig& config) {
  verify(desc);
  // The largest count among a kernel's configs: an SM's whole memory is allowed, and each launch
  // states its need.
  const DecodeDevice device = decode_device();
  if (config.shared_bytes > device.shared_bytes) {
    fail(ErrorCode::kResource, "decode attention: {} bytes of shared memory (at most {})",
         config.shared_bytes, device.shared_bytes);
  }
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(find_kernel(desc)),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared_bytes),
             "decode attention: shared memory");
}

DecodeArgs decode_args(const DecodeDesc& desc, const DecodeParams& p, const DecodeConfig& config) {
  verify(desc);
  require_pointer(p.q, "q", 16);
  require_pointer(p.k_cache, "k_cache", 16);
  require_pointer(p.v_cache, "v_cache", 16);
  require_pointer(p.out, "out", 16);
  require_pointer(p.workspace, "the workspace", 16);
  require_pointer(p.q_start, "q_start", 4);
  require_pointer(p.kv_len, "kv_len", 4);
  require_pointer(p.page_table, "page_table", 4);
  const int64_t packed = desc.num_q_heads * desc.attrs.head_dim;
  const KvHeads heads = kv_heads_read(desc);
  DecodeArgs a{};
  a.q = p.q;
  a.k = p.k_cache;
  a.v = p.v_cache;
  a.q_start = p.q_start;
  a.kv_len = p.kv_len;
  a.page_table = p.page_table;
  a.sequences = p.sequences;
  a.out = p.out;
  a.workspace = p.workspace;
  a.q_stride = checked_stride(p.q_stride, packed, "q");
  a.out_stride = checked_stride(p.out_stride, packed, "out");
  a.token_bytes =
      static_cast<uint32_t>(bytes_of(desc.cache_dtype, desc.num_kv_heads * desc.attrs.head_dim));
  a.shape = {unit_log2(static_cast<int>(desc.attrs.head_dim)), static_cast<int>(desc.attrs.group),
             heads.count, static_cast<int>(std::min<int64_t>(desc.attrs.window, 1 << 28))};
  a.max_sequences = desc.max_sequences;
  a.num_q_heads = desc.num_q_heads;
  a.first_kv_head = heads.first;
  a.head_offset = static_cast<int>(desc.attrs.head_offset);
  a.page_size = desc.page_size;
  a.page_inverse = static_cast<uint32_t>(((uint64_t{1} << 32) + desc.page_size - 1) /
                                         static_cast<uint64_t>(desc.page_size));
  a.table_stride = desc.table_stride;
  a.scale = desc.attrs.scale;
  a.softcap = desc.attrs.softcap;
  a.softcap_inverse = desc.attrs.softcap > 0 ? 1.f / desc.attrs.softcap : 0.f;
  a.q_f32 = desc.q_dtype == DType::f32;
  a.out_f32 = desc.out_dtype == DType::f32;
  a.history_ready = p.history_ready;
  a.warps_log2 = std::countr_zero(static_cast<unsigned>(config.warps));
  return a;
}

void decode_attention(const DecodeDesc& desc, const DecodeParams& p, const DecodeConfig& config,
                      LaunchContext context) {
  launch_kernel(context, find_kernel(desc), static_cast<unsigned>(config.ctas),
                static_cast<unsigned>(32 * config.warps), config.shared_bytes,
                decode_args(desc, p, config));
}

}  // namespace braid::cuda
