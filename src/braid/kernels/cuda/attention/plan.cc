#include "braid/kernels/cuda/attention/plan.h"

#include <algorithm>
#include <numeric>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// Keys that the last query of a segment sees, at most: what orders the segments.
int64_t keys_seen(const AttentionDesc& desc, const AttentionParams& params, const QSegment& q) {
  const int64_t last = int64_t{q.offset} + q.length - 1;
  int64_t n = 0;
  for (int j = q.kv_begin; j < q.kv_end; ++j) {
    const KvSegment& kv = params.kv[j];
    int64_t begin = 0;
    int64_t end = kv.length;
    if (desc.window_left != kUnlimited) begin = last - desc.window_left - kv.offset;
    if (desc.window_right != kUnlimited) end = last + desc.window_right + 1 - kv.offset;
    n += std::max<int64_t>(0, std::min<int64_t>(end, kv.length) - std::max<int64_t>(begin, 0));
  }
  return n;
}

int heads_per_pass(const AttentionDesc& desc, const AttentionParams& params, int pack) {
  const int group = desc.num_q_heads / desc.num_kv_heads / pack;  // tiles that share keys
  if (desc.window_right == kUnlimited) return group;
  int64_t keys = 0;
  for (const KvSegment& kv : params.kv) keys += kv.length;
  const int64_t bytes = std::max<int64_t>(1, keys * (desc.head_dim_qk + desc.head_dim_v) * 2);
  constexpr int64_t kBudget = 24 << 20;  // about half of an H200's L2
  const int64_t kv_heads = std::clamp<int64_t>(kBudget / bytes, 1, desc.num_kv_heads * desc.batch);
  return static_cast<int>(kv_heads * group);
}

}  // namespace

AttentionPlan make_plan(const AttentionDesc& desc, const AttentionParams& params,
                        const AttentionConfig& config) {
  AttentionPlan plan{};
  plan.batch = desc.batch;
  plan.pack = config.pack;
  plan.group = desc.num_q_heads / desc.num_kv_heads;
  BRAID_CHECK(config.pack >= 1 && plan.group % config.pack == 0 && config.pack <= 64,
              "pack {} of a group of {}", config.pack, plan.group);
  plan.num_head_items = desc.num_q_heads / config.pack;
  plan.unit_tokens = 64 / config.pack;
  plan.tile_tokens = config.block_m / 64 * plan.unit_tokens;
  plan.heads_per_pass = heads_per_pass(desc, params, config.pack);
  plan.window_left = desc.window_left == kUnlimited ? kNoWindow : desc.window_left;
  plan.window_right = desc.window_right == kUnlimited ? kNoWindow : desc.window_right;
  plan.page_size = desc.page_size;
  plan.scale = desc.scale;
  plan.load_state = desc.load_state;
  plan.finalize = desc.finalize;
  plan.state_bf16 = desc.state_dtype == DType::bf16;
  for (size_t j = 0; j < params.kv.size(); ++j) plan.kv[j] = params.kv[j];

  std::vector<int> order(params.q.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return keys_seen(desc, params, params.q[a]) > keys_seen(desc, params, params.q[b]);
  });
  int64_t items = 0;
  for (int i : order) {
    if (params.q[i].length == 0) continue;
    const int n = plan.num_q++;
    plan.q[n] = params.q[i];
    plan.source[n] = i;
    plan.tiles_m[n] = static_cast<int32_t>(ceil_div(params.q[i].length, plan.tile_tokens));
    plan.item_begin[n] = static_cast<int32_t>(items);
    items += int64_t{plan.tiles_m[n]} * plan.num_head_items * plan.batch;
    if (items > (1 << 30)) fail(ErrorCode::kUnsupported, "attention: {} tiles in one call", items);
  }
  plan.num_items = static_cast<int32_t>(items);
  plan.item_begin[plan.num_q] = plan.num_items;
  return plan;
}

}  // namespace braid::cuda
