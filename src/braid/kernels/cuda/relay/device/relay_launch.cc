#include <algorithm>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/relay/device/cache_map.h"
#include "braid/kernels/cuda/relay/device/relay_args.h"
#include "braid/kernels/cuda/relay/device/relay_kernel.h"
#include "braid/kernels/cuda/relay/device/relay_launch.h"
#include "braid/kernels/cuda/relay/relay_layout.h"

namespace braid::cuda {
namespace {

constexpr int64_t kMapBytes = sizeof(CUtensorMap);

int64_t mail_bytes(const std::vector<RelayStep>& steps, const RelayConfig& c) {
  int64_t elems = 0;
  for (const RelayStep& s : steps) {
    elems = std::max<int64_t>(
        elems, s.attends ? int64_t{s.attention.kv_heads} * s.attention.group * c.head_dim
                         : s.linear.units);
  }
  return round_up(elems / 2 * 8, 256);
}

// The map for a weight's rows, in 2-byte elements.
CUtensorMap map_of(const RelayLinear& s, int part) {
  const RelayTiles& t = s.cut.tiles[part];
  const MapDim dims[] = {{t.row_bytes / 2, 2, t.stride / 2},
                         {s.n[part], t.row_bytes, kRelayTileRows}};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_SWIZZLE_NONE, kMapNarrow,
                         s.w[part], dims, "a weight");
}

}  // namespace

bool Relay::fits(const RelayConfig& config, const DeviceInfo& device) {
  const DeviceScope scope(device.id);
  return prepare_relay_kernel(config, device.shared_memory_per_cta) * device.num_sms >= config.ctas;
}

Relay::Relay(std::vector<RelayStep> steps, std::span<const Cache> caches,
             std::vector<std::shared_ptr<DeviceMemory>> tables, const RelayConfig& config,
             const int64_t* rows, int device, DeviceComm* comm)
    : config_(config),
      rows_(rows),
      num_steps_(static_cast<int>(steps.size())),
      tables_(std::move(tables)),
      steps_(device, std::ssize(steps) * static_cast<int64_t>(sizeof(RelayStep))),
      maps_(device, (kRelayWeights * std::ssize(steps) + 1) * kMapBytes),
      words_(device, 256 + kRelayMail * mail_bytes(steps, config) +
                         int64_t{config.ctas} * RelayAttentionLayout::kItems * config.group *
                             (config.head_dim / 2 + 1) * 16),
      mail_bytes_(mail_bytes(steps, config)),
      comm_(comm) {
  for (RelayStep& s : steps) {
    if (!s.attends) cut_for(s.linear, config.ctas);
  }
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].attends || !steps[i].linear.summed) continue;
    RelayLinear& from = steps[i - 1].linear;
    from.shared = true;
    sum_pairs_ = std::max<int64_t>(sum_pairs_, from.units / 2);
    put_bytes_ += int64_t{2} * from.units;
  }
  if (sum_pairs_ > 0) {
    sums_ = comm->endpoint().allocate<std::byte>(2 * comm->size() * sum_pairs_ * 8,
                                                 comm->name() + "/relay");
  }
  std::vector<CUtensorMap> maps;
  const auto add = [&](const CUtensorMap& map) {
    maps.push_back(map);
    return maps_.data() + (std::ssize(maps) - 1) * kMapBytes;
  };
  size_t cache = 0;
  for (RelayStep& s : steps) {
    if (s.attends) {
      const Cache& c = caches[cache++];
      const int box = relay_box(config.head_dim, s.attention.page_size);
      s.attention.k_map = add(swizzled_cache_map(c.k, c.slots, c.kv_heads, config.head_dim, box));
      s.attention.v_map = add(swizzled_cache_map(c.v, c.slots, c.kv_heads, config.head_dim, box));
      continue;
    }
    for (int part = 0; config.blocks && part < kRelayWeights; ++part) {
      if (s.linear.cut.tiles[part].boxed) s.linear.map[part] = add(map_of(s.linear, part));
    }
  }
  const auto copy = [](std::byte* to, const void* from, size_t bytes) {
    check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "a relay's steps");
  };
  copy(steps_.data(), steps.data(), steps.size() * sizeof(RelayStep));
  if (!maps.empty()) copy(maps_.data(), maps.data(), maps.size() * sizeof(CUtensorMap));
}

void Relay::share(RelayArgs& args) const {
  const int ranks = comm_->size();
  args.ranks = comm_->view(comm_->norm_tag());
  for (int q = 0; q < ranks; ++q) {
    args.sums[q] = reinterpret_cast<uint2*>(comm_->at_peer(sums_.data(), q));
    if (q != comm_->index()) comm_->count(comm_->norm_tag(), q, {.put = put_bytes_});
  }
}

void Relay::launch(const LaunchContext& context) {
  RelayArgs args{.steps = reinterpret_cast<const RelayStep*>(steps_.data()),
                 .rows = rows_,
                 .parts = reinterpret_cast<uint4*>(words_.data() + 256 + kRelayMail * mail_bytes_),
                 .control = reinterpret_cast<uint32_t*>(words_.data()),
                 .num_steps = num_steps_,
                 .slots = config_.slots,
                 .x_bytes = config_.x_bytes,
                 .num_sums = config_.sums,
                 .sum_pairs = static_cast<int32_t>(sum_pairs_)};
  for (int i = 0; i < kRelayMail; ++i) {
    args.mail[i] = reinterpret_cast<uint2*>(words_.data() + 256 + i * mail_bytes_);
  }
  if (sum_pairs_ > 0) share(args);
  launch_relay_kernel(config_, args, context.stream);
}

}  // namespace braid::cuda
