#include "braid/kernels/cuda/fused_attention/device/fused_launch.h"

#include <algorithm>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/cluster/device/cluster_fit.h"
#include "braid/kernels/cuda/fused_attention/batch_layout.h"
#include "braid/kernels/cuda/fused_attention/fused_layout.h"
#include "braid/kernels/cuda/relay/device/cache_map.h"

namespace braid::cuda {
namespace {

constexpr int kControlBytes = 256;
// Copies of all producers under way, in twos; with few CTAs each producer has more.
constexpr int kInFlight = 400, kLeastInFlight = 3, kInFlightWords = 2;

FusedKernel kernel_for(const FusedShape& s, ExchangePath path,
                       FusedSplit split = FusedSplit::token) {
  const bool narrow = s.head_dim == 64;
  if (split == FusedSplit::head) {
    return narrow ? fused_kernel_by_head_64(s.group, path)
                  : fused_kernel_by_head_128(s.group, path);
  }
  if (fused_batches(s)) {
    if (s.group > kFusedSetHeads) {
      return narrow ? fused_wide_kernel_64(s.cache, path) : fused_wide_kernel_128(s.cache, path);
    }
    return narrow ? fused_batch_kernel_64(s.cache, path) : fused_batch_kernel_128(s.cache, path);
  }
  return narrow ? fused_kernel_64(s.group, path) : fused_kernel_128(s.group, path);
}

CUtensorMap map_of(void* cache, const FusedShape& s, const FusedConfig& c, int num_slots) {
  const int elems = c.split == FusedSplit::head ? s.head_dim / c.cluster : s.head_dim;
  const int box = relay_box(elems, s.page_size);
  if (fused_batches(s)) return swizzled_cache_map(cache, num_slots, s.kv_heads, s.head_dim, box);
  const int64_t row = int64_t{2} * s.head_dim;
  const MapDim dims[] = {
      {s.head_dim, 2, elems}, {s.kv_heads, row, 1}, {num_slots, s.kv_heads * row, box}};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_NONE, kMapNarrow,
                         cache, dims, "a cache");
}

// The map for a weight [n, k] in tiles of swizzled rows.
CUtensorMap map_of_weight(const void* w, int64_t n, int64_t k) {
  const MapDim dims[] = {{64, 2, 64}, {n, 2 * k, kFusedTileRows}, {k / 64, 128, kFusedChunk / 64}};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, kMapNarrow,
                         w, dims, "a weight");
}

int64_t words_bytes(const FusedShape& s) {
  return kControlBytes + round_up(s.tokens * s.kv_heads * s.group * s.head_dim / 2 * 8, 256);
}

// Words between a KV head's parts: rows of q k v, then parts of attention.
int64_t row_words(const FusedShape& s) {
  return s.kv_heads * s.tokens * (s.group + 2) * s.head_dim;
}
int64_t part_words(const FusedShape& s, const FusedConfig& c) {
  return s.kv_heads * c.parts * s.tokens * s.group * (s.head_dim + 4);
}

}  // namespace

FusedDevice fused_device(const DeviceInfo& device, int head_dim) {
  const DeviceScope scope(device.id);
  FusedDevice result{.compute_capability = device.compute_capability,
                     .smem_per_cta = device.shared_memory_per_cta};
  if (result.compute_capability != 90) return result;
  for (int size = 1; size <= kMaxCluster; ++size) {
    result.clusters[static_cast<size_t>(size)] = max_active_clusters(
        reinterpret_cast<const void*>(kernel_for({.head_dim = head_dim}, ExchangePath::chip)), size,
        kFusedBlock, static_cast<int>(device.shared_memory_per_cta));
  }
  return result;
}

FusedAttention::FusedAttention(const FusedShape& s, const FusedConfig& c, const FusedArgs& operands,
                               int device)
    : config_(c),
      kernel_(kernel_for(s, c.path, c.split)),
      args_(operands),
      words_(device, words_bytes(s)),
      mail_(device, c.path == ExchangePath::memory
                        ? s.kv_heads * c.parts * exchange_mail_bytes(c.cluster, c.inbox_bytes)
                        : 16),
      parts_(device, c.parts > 1 ? 8 * (row_words(s) + part_words(s, c)) : 16) {
  const bool projects = c.scope == FusedScope::projected;
  const int64_t attended = s.kv_heads * s.group * s.head_dim;
  args_.k_map = map_of(args_.cache_k, s, c, args_.num_slots);
  args_.v_map = map_of(args_.cache_v, s, c, args_.num_slots);
  args_.control = reinterpret_cast<uint32_t*>(words_.data());
  args_.words = reinterpret_cast<uint2*>(words_.data() + kControlBytes);
  args_.mail = c.path == ExchangePath::memory ? reinterpret_cast<uint4*>(mail_.data()) : nullptr;
  args_.mail_bytes = exchange_mail_bytes(c.cluster, c.inbox_bytes);
  args_.width = static_cast<int32_t>(s.width);
  args_.outputs = projects ? static_cast<int32_t>(s.outputs) : 0;
  args_.kv_heads = static_cast<int32_t>(s.kv_heads);
  args_.group = s.group;
  args_.cluster = c.cluster;
  args_.parts = c.parts;
  if (c.parts > 1) {
    args_.row_words = reinterpret_cast<uint2*>(parts_.data());
    args_.part_words = args_.row_words + row_words(s);
  }
  args_.slots = c.slots;
  args_.inbox_bytes = c.inbox_bytes;
  args_.tokens = static_cast<int32_t>(s.tokens);
  args_.each = c.each;
  args_.heads = c.heads;
  if (fused_batches(s)) {
    args_.x_elems = fused_batch(s, c).x_elems;
    for (int i = 0; i < (projects ? 4 : 3); ++i) {
      args_.w_f16[i] = s.weights[static_cast<size_t>(i)] == DType::f16;
      args_.w_map[i] = map_of_weight(args_.w[i],
                                     i == 0   ? attended
                                     : i == 3 ? s.outputs
                                              : s.kv_heads * s.head_dim,
                                     i == 3 ? attended : s.width);
    }
  } else {
    args_.x_elems = static_cast<int32_t>(projects ? std::max(s.width, attended) : s.width);
    args_.num_sums = fused_sums(s, c.scope, c.members());
    if (c.split == FusedSplit::head) {
      const ExchangeDesc scores = fused_scores(s, c.cluster);
      args_.num_scores = static_cast<int32_t>(scores.bytes / 2);
      args_.score_form = choose_exchange(scores);
    }
  }
  args_.page_size = static_cast<int32_t>(s.page_size);
  set_in_flight(std::max(kLeastInFlight, kInFlight / c.at_once), kInFlightWords);
  const DeviceScope scope(device);
  const int64_t wanted = projects || c.parts > 1 ? s.kv_heads * c.parts : 1;
  if (max_active_clusters(reinterpret_cast<const void*>(kernel_), c.cluster, kFusedBlock,
                          c.shared_bytes) < wanted) {
    fail(ErrorCode::kUnsupported, "{}: the GPU does not run {} such clusters at once", to_string(c),
         wanted);
  }
}

void FusedAttention::set_in_flight(int in_flight, int in_flight_words) {
  // The oldest copy under way must still have its place in the ring.
  const int most = config_.slots / kFusedProducers - 1;
  args_.in_flight = std::min(in_flight, most);
  args_.in_flight_words = std::min(in_flight_words, most);
}

void FusedAttention::launch(const LaunchContext& context) const {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = static_cast<unsigned>(args_.cluster);
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(config_.ctas));
  config.blockDim = dim3(kFusedBlock);
  config.dynamicSmemBytes = static_cast<size_t>(config_.shared_bytes);
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = context.starts_early() ? 2 : 1;
  void* arguments[] = {const_cast<FusedArgs*>(&args_)};
  check_cuda(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel_), arguments),
             "a fused attention block");
}

}  // namespace braid::cuda
