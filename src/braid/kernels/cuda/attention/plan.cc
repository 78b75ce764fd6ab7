#include "braid/kernels/cuda/attention/plan.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// Most keys visible to a segment's last query: the weight by which segments are ordered.
int64_t keys_seen(const AttentionDesc& desc, const AttentionParams& params, const QTensor& q) {
  const int64_t last = int64_t{q.offset} + q.length - 1;
  int64_t n = 0;
  for (int j = q.kv_begin; j < q.kv_end; ++j) {
    const KvTensor& kv = params.kv[j];
    int64_t begin = 0;
    int64_t end = kv.length;
    if (desc.window_left != kUnlimited) begin = last - desc.window_left - kv.offset;
    if (desc.window_right != kUnlimited) end = last + desc.window_right + 1 - kv.offset;
    n += std::max<int64_t>(0, std::min<int64_t>(end, kv.length) - std::max<int64_t>(begin, 0));
  }
  return n;
}

int heads_per_pass(const AttentionDesc& desc, const AttentionParams& params, int pack) {
  const int group = desc.num_q_heads / desc.num_kv_heads / pack;  // tiles with common keys
  if (desc.window_right == kUnlimited) return group;
  int64_t keys = 0;
  for (const KvTensor& kv : params.kv) keys += kv.length;
  const int64_t bytes = std::max<int64_t>(1, keys * (desc.head_dim_qk + desc.head_dim_v) * 2);
  constexpr int64_t kBudget = 24 << 20;  // about half of an H200's L2
  const int64_t kv_heads = std::clamp<int64_t>(kBudget / bytes, 1, desc.num_kv_heads * desc.batch);
  return static_cast<int>(kv_heads * group);
}

// Whether tensor y, with stride t, continues x, with stride s, after `tokens` tokens.
bool follows(const void* x, const Strides& s, const void* y, const Strides& t, int64_t tokens,
             int element_bytes) {
  return s.batch == t.batch && s.token == t.token && s.head == t.head &&
         reinterpret_cast<uintptr_t>(x) + element_bytes * s.token * tokens ==
             reinterpret_cast<uintptr_t>(y);
}

// Whether `b` continues `a`, in memory and in position.
bool continues(const AttentionDesc& desc, const KvTensor& a, const KvTensor& b) {
  return desc.page_size == 0 && a.stage == b.stage && !a.lengths && !b.lengths && a.length > 0 &&
         b.length > 0 && a.offset + a.length == b.offset &&
         follows(a.k, a.k_stride, b.k, b.k_stride, a.length, 2) &&
         follows(a.v, a.v_stride, b.v, b.v_stride, a.length, 2);
}

// The same for Q segments of a run.
bool continues(const AttentionDesc& desc, const QTensor& a, const QTensor& b) {
  const auto rows = [&](const void* x, const void* y) {
    return follows(x, a.row_stride, y, b.row_stride, a.length, 4);
  };
  if (a.offset + a.length != b.offset) return false;
  if (!follows(a.q, a.q_stride, b.q, b.q_stride, a.length, 2)) return false;
  if (desc.finalize) {
    if (!follows(a.o, a.o_stride, b.o, b.o_stride, a.length, 2)) return false;
    if (!a.lse != !b.lse || (a.lse && !rows(a.lse, b.lse))) return false;
  }
  if (desc.load_state || !desc.finalize) {
    const int bytes = desc.state_dtype == DType::bf16 ? 2 : 4;
    if (!follows(a.state_o, a.state_stride, b.state_o, b.state_stride, a.length, bytes)) {
      return false;
    }
    if (!rows(a.state_l, b.state_l) || !rows(a.state_m, b.state_m)) return false;
  }
  return true;
}

// Whether a tile of keys may begin in `a` and end in `b`: either positions do not matter, or
// positions continue. Pieces of tiles are 8 rows, the height of a swizzled block.
bool shares_tiles(const AttentionDesc& desc, const KvTensor& a, const KvTensor& b) {
  const bool windowed = desc.window_left != kUnlimited || desc.window_right != kUnlimited;
  return desc.page_size == 0 && a.stage == b.stage && !a.lengths && !b.lengths &&
         a.length % kKeyPiece == 0 && (!windowed || a.offset + a.length == b.offset);
}

// Joins KV segments that are contiguous in memory and visible together. `place[j]` is the new place
// of the boundary before the caller's segment j.
std::vector<KvTensor> joined(const AttentionDesc& desc, const AttentionParams& params,
                             std::vector<int>& place) {
  std::vector<bool> cut(params.kv.size() + 1);
  for (const QTensor& q : params.q) cut[q.kv_begin] = cut[q.kv_end] = true;
  std::vector<KvTensor> out;
  for (size_t j = 0; j < params.kv.size(); ++j) {
    const bool joins = !cut[j] && !out.empty() && continues(desc, out.back(), params.kv[j]);
    if (joins) {
      out.back().length += params.kv[j].length;
    } else {
      out.push_back(params.kv[j]);
    }
    place.push_back(static_cast<int>(out.size()) - 1);
  }
  place.push_back(static_cast<int>(out.size()));
  return out;
}

// Deals the segments into runs. The result is each segment's run, and one past the last.
std::vector<int> runs_of_keys(const AttentionDesc& desc, const AttentionParams& params,
                              const AttentionConfig& config, const std::vector<KvTensor>& kv,
                              const std::vector<int>& place, AttentionPlan& plan) {
  std::vector<bool> cut(kv.size() + 1);
  for (const QTensor& q : params.q) cut[place[q.kv_begin]] = cut[place[q.kv_end]] = true;
  std::vector<int> run_of;
  int runs = 0;
  for (size_t j = 0; j < kv.size(); ++j) {
    const bool joins = j > 0 && !cut[j] && config.kernel == AttentionKernel::kHopper &&
                       shares_tiles(desc, kv[j - 1], kv[j]) &&
                       plan.kv_run_length[runs - 1] + kv[j].length <= kMaxRunLength;
    if (!joins) {
      plan.kv_stage[runs] = kv[j].stage;
      plan.kv_run_begin[runs++] = static_cast<int32_t>(j);
    }
    plan.kv_first[j] = plan.kv_run_length[runs - 1];
    plan.kv_run_length[runs - 1] += kv[j].length;
    run_of.push_back(runs - 1);
  }
  plan.kv_run_begin[runs] = static_cast<int32_t>(kv.size());
  run_of.push_back(runs);
  return run_of;
}

// Groups Q segments that can share tiles; empty segments are left out. Runs are ordered by arrival,
// then by weight, heaviest first.
std::vector<std::vector<int>> runs_of(const AttentionDesc& desc, const AttentionParams& params) {
  std::vector<int> order;
  for (size_t i = 0; i < params.q.size(); ++i) {
    if (params.q[i].length > 0) order.push_back(static_cast<int>(i));
  }
  const bool windowed = desc.window_left != kUnlimited || desc.window_right != kUnlimited;
  const auto key = [&](int i) {
    const QTensor& q = params.q[i];
    return std::tuple(q.stage, q.kv_begin, q.kv_end, windowed ? q.offset : 0);
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  std::vector<std::vector<int>> runs;
  for (int i : order) {
    const QTensor& q = params.q[i];
    const QTensor* before = runs.empty() ? nullptr : &params.q[runs.back().back()];
    const bool joins = before != nullptr && before->stage == q.stage && before->early == q.early &&
                       before->kv_begin == q.kv_begin && before->kv_end == q.kv_end &&
                       !before->starts && !q.starts && !before->offsets && !q.offsets &&
                       (!windowed || before->offset + before->length == q.offset);
    if (!joins) runs.emplace_back();
    runs.back().push_back(i);
  }
  std::stable_sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) {
    const QTensor &x = params.q[a.back()], &y = params.q[b.back()];
    return std::pair(x.stage, -keys_seen(desc, params, x)) <
           std::pair(y.stage, -keys_seen(desc, params, y));
  });
  return runs;
}

// Numbers the items, run by run.
void deal_items(AttentionPlan& plan) {
  int64_t items = 0;
  for (int r = 0; r < plan.num_runs; ++r) {
    plan.item_begin[r] = static_cast<int32_t>(items);
    items += int64_t{plan.tiles_m[r]} * plan.num_head_items * plan.batch;
    if (items > (1 << 30)) fail(ErrorCode::kUnsupported, "attention: {} tiles in one call", items);
    plan.by_pass[r] = make_divisor(std::max(plan.tiles_m[r] * plan.heads_per_pass, 1));
  }
  plan.num_items = static_cast<int32_t>(items);
  plan.item_begin[plan.num_runs] = plan.num_items;
}

}  // namespace

AttentionPlan make_plan(const AttentionDesc& desc, const AttentionParams& params,
                        const AttentionConfig& config) {
  AttentionPlan plan{};
  plan.batch = desc.batch;
  plan.pack = config.pack;
  plan.pack_inverse = 65536 / config.pack + 1;
  plan.group = desc.num_q_heads / desc.num_kv_heads;
  BRAID_CHECK(config.pack >= 1 && plan.group % config.pack == 0 && config.pack <= 64,
              "pack {} of a group of {}", config.pack, plan.group);
  plan.num_head_items = desc.num_q_heads / config.pack;
  plan.unit_tokens = 64 / config.pack;
  plan.tile_units = config.block_m / 64;
  BRAID_CHECK(plan.tile_units <= kMaxTileUnits, "tile of {} rows", config.block_m);
  plan.heads_per_pass = heads_per_pass(desc, params, config.pack);
  const int32_t heads = plan.num_head_items * plan.batch;
  const int32_t last_heads = heads % plan.heads_per_pass;
  plan.by_pass_heads = make_divisor(plan.heads_per_pass);
  plan.by_last_heads = make_divisor(last_heads > 0 ? last_heads : plan.heads_per_pass);
  plan.by_head_items = make_divisor(plan.num_head_items);
  plan.by_group = make_divisor(plan.group);
  plan.window_left = desc.window_left == kUnlimited ? kNoWindow : desc.window_left;
  plan.window_right = desc.window_right == kUnlimited ? kNoWindow : desc.window_right;
  plan.page_size = desc.page_size;
  plan.scale = desc.scale;
  plan.load_state = desc.load_state;
  plan.finalize = desc.finalize;
  plan.state_bf16 = desc.state_dtype == DType::bf16;
  std::vector<int> place;
  const std::vector<KvTensor> kv = joined(desc, params, place);
  std::copy(kv.begin(), kv.end(), plan.kv);
  const std::vector<int> kv_run = runs_of_keys(desc, params, config, kv, place, plan);

  for (const QTensor& q : params.q) plan.device_lengths |= q.starts || q.offsets;
  for (const KvTensor& kv : params.kv) plan.device_lengths |= kv.lengths != nullptr;

  const std::vector<std::vector<int>> runs = runs_of(desc, params);
  for (const std::vector<int>& run : runs) {
    const int r = plan.num_runs++;
    plan.run_begin[r] = plan.num_q;
    for (int i : run) {
      if (plan.num_q > plan.run_begin[r] && continues(desc, plan.q[plan.num_q - 1], params.q[i])) {
        QTensor& q = plan.q[plan.num_q - 1];
        q.length += params.q[i].length;
        plan.run_units[r] = plan.unit_begin[plan.num_q - 1] +
                            static_cast<int32_t>(ceil_div(q.length, plan.unit_tokens));
        continue;
      }
      const int n = plan.num_q++;
      plan.q[n] = params.q[i];
      plan.q[n].kv_begin = kv_run[place[params.q[i].kv_begin]];
      plan.q[n].kv_end = kv_run[place[params.q[i].kv_end]];
      plan.source[n] = i;
      plan.unit_begin[n] = plan.run_units[r];
      plan.run_units[r] += static_cast<int32_t>(ceil_div(params.q[i].length, plan.unit_tokens));
    }
    plan.tiles_m[r] = static_cast<int32_t>(ceil_div(plan.run_units[r], plan.tile_units));
  }
  plan.run_begin[plan.num_runs] = plan.num_q;
  deal_items(plan);
  return plan;
}

}  // namespace braid::cuda
