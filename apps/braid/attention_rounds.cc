#include "braid/attention_rounds.h"

#include "braid/backend/cuda/device.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/launch.h"
#include "braid/ops/segment_attention.h"

namespace braid::app {

SequenceAttention::Rounds rounds_of(const AttentionBench& bench, const SequenceMesh& mesh,
                                    int device) {
  const cuda::DeviceScope scope(device);
  const int groups = mesh.degrees.head_groups();
  const int64_t kv_heads = bench.kv_heads > 0 ? bench.kv_heads : bench.heads;
  if (bench.heads % groups != 0 || kv_heads % groups != 0) return {};
  cuda::AttentionDesc desc{.batch = static_cast<int>(bench.batch),
                           .num_q_heads = static_cast<int>(bench.heads / groups),
                           .num_kv_heads = static_cast<int>(kv_heads / groups)};
  desc.head_dim_qk = desc.head_dim_v = static_cast<int>(bench.head_dim);
  desc.scale = 1;
  desc.finalize = false;
  alignas(16) std::byte somewhere[16];  // nothing is read
  cuda::QSegment q{.q = somewhere};
  q.state_o = somewhere;
  q.state_l = q.state_m = reinterpret_cast<float*>(somewhere);
  cuda::KvSegment kv{.k = somewhere, .v = somewhere};
  q.length = kv.length = static_cast<int32_t>(bench.tokens / mesh.ranks() * mesh.degrees.ulysses);
  q.kv_end = 1;
  const cuda::AttentionDevice all = cuda::attention_device();
  const auto [config, spare_sms] = cuda::choose_beside_one_warp(desc, {{&q, 1}, {&kv, 1}}, all);
  if (config.pack != 1 || config.split != 1) return {};
  return {.rows = config.block_m,
          .tiles = int64_t{all.num_sms - spare_sms} * config.ctas_per_sm / config.cluster};
}

double rounded_seconds(const ModePlan& plan, const SequenceAttention::Rounds& rounds) {
  constexpr double kFlopsPerSecond = 6e14;  // of attention on an H200, about
  double pairs = 0;
  for (const Op& op : plan.programs[0].ops) {
    if (op.def != &ops::kSegmentAttention) continue;
    const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
    int64_t tiles = attrs.row_tiles(rounds.rows) * attrs.heads, keys = 0;
    for (const ops::KvSegment& kv : attrs.kv) keys += kv.rows;
    tiles = ceil_div(tiles * plan.attention.batch, rounds.tiles) * rounds.tiles;
    pairs += static_cast<double>(tiles * rounds.rows) * static_cast<double>(keys);
  }
  return 4 * pairs * static_cast<double>(plan.attention.head_dim) / kFlopsPerSecond;
}

}  // namespace braid::app
