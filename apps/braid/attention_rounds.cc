#include "braid/attention_rounds.h"

#include "braid/backend/cuda/device.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/launch.h"
#include "braid/ops/segment_attention.h"
#include "braid/schedule/beside.h"

namespace braid::app {

KernelRounds rounds_of(const AttentionBench& bench, const SequenceMesh& mesh, int device) {
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
  const cuda::SparingConfig chosen = cuda::choose_beside_one_warp(desc, {{&q, 1}, {&kv, 1}}, all);
  const cuda::AttentionConfig& config = chosen.config;
  if (config.pack != 1 || config.split != 1) return {};
  const auto tiles = [&](int sms) { return int64_t{sms} * config.ctas_per_sm / config.cluster; };
  return {{.rows = config.block_m, .tiles = tiles(chosen.num_sms)}, tiles(all.num_sms)};
}

double rounded_seconds(const ModePlan& plan, const KernelRounds& rounds) {
  constexpr double kFlopsPerSecond = 6e14;                     // of attention on an H200, about
  constexpr double kCallSeconds = 5e-6, kStateSeconds = 3e-6;  // of a tile, of those at once
  const Program& program = plan.programs[0];
  const Schedule& schedule = plan.schedules[0];
  const std::vector<Beside> beside = launches_beside(program, schedule);
  double pairs = 0, seconds = 0;
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const Op& op = schedule.op(program, schedule.launches[i]);
    if (op.def != &ops::kSegmentAttention) continue;
    const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
    const int64_t rows = rounds.beside.rows;
    const int64_t tiles = beside[i].communicates ? rounds.beside.tiles : rounds.alone;
    const int64_t turns =
        ceil_div(attrs.row_tiles(rows) * attrs.heads * plan.attention.batch, tiles);
    int64_t keys = 0;
    for (const ops::KvSegment& kv : attrs.kv) keys += kv.rows;
    seconds += kCallSeconds;
    if (attrs.load_state || !attrs.finalize) seconds += static_cast<double>(turns) * kStateSeconds;
    pairs += static_cast<double>(turns * rounds.alone * rows) * static_cast<double>(keys);
  }
  return seconds + 4 * pairs * static_cast<double>(plan.attention.head_dim) / kFlopsPerSecond;
}

}  // namespace braid::app
