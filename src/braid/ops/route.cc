#include "braid/ops/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

enum Output : size_t { kWeight, kPlace, kToken, kBegin };
constexpr float kLowest = -std::numeric_limits<float>::infinity();
// Keeps a sum of all-zero sigmoids from dividing by 0; no other sum changes.
constexpr float kLeastSum = 1e-20f;

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<RouteAttrs>();
  const ValueType& logits = in[0];
  require_rank("route", "logits", logits, 2);
  require_dtype("route", "logits", logits, DType::f32);
  const int64_t T = logits.shape[0], E = logits.shape[1];
  if (in[1].shape.rank() != 0) {
    require_rank("route", "bias", in[1], 1);
    require_dim("route", "bias", in[1], 0, E);
    require_dtype("route", "bias", in[1], DType::f32);
  }
  const auto refuse = [&](std::string_view what, int64_t value, int64_t limit) {
    if (1 <= value && value <= limit) return;
    fail(ErrorCode::kInvalidArgument, "route: {} is {}, allowed are 1 to {}", what, value, limit);
  };
  refuse("the number of experts", E, kMaxExperts);
  refuse("the number of experts of a token", a.top_k, E);
  refuse("the number of groups", a.groups, E);
  refuse("the number of kept groups", a.kept_groups, a.groups);
  if (E % a.groups != 0) {
    fail(ErrorCode::kInvalidArgument, "route: {} experts in {} groups", E, a.groups);
  }
  refuse("the number of experts of a token", a.top_k, a.kept_groups * (E / a.groups));
  return {{DType::f32, {T, a.top_k}, logits.axis},
          {DType::i32, {T, a.top_k}, logits.axis},
          {DType::i32, {T * a.top_k}, BatchAxis::expert_row},
          {DType::i32, {held_experts(a, E).size() + 1}, BatchAxis::none}};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  Cost cost;
  for (const TypeList types : {in, out}) {
    for (const ValueType& type : types) cost.bytes += live_bytes(type, work);
  }
  cost.flops = 8 * live_elems(in[0], work);
  return cost;
}

ShardRule shard(const Attrs& attrs, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(2, 4);
  if (placed[0].is_shard(1)) {
    // Each rank finds all choices, and makes its own experts' rows.
    std::vector<Range> begin;
    for (const Range& part : placed[0].parts) begin.push_back({part.begin, part.end + 1});
    rule.outputs[kPlace] = Placement::partial();
    rule.outputs[kToken] = placed[0];
    rule.outputs[kToken].dim = 0;
    rule.outputs[kBegin] = Placement::shard(0, std::move(begin));
    return rule;
  }
  if (!placed[0].is_shard(0)) return rule;
  rule.inputs[0] = rule.outputs[kWeight] = rule.outputs[kPlace] = placed[0];
  rule.outputs[kToken] =
      Placement::shard(0, scale_parts(placed[0].parts, attrs.as<RouteAttrs>().top_k));
  return rule;
}

Attrs localize(const Attrs& attrs, TypeList, const ShardRule& rule, int rank) {
  auto local = attrs.as<RouteAttrs>();
  if (const Placement& begin = rule.outputs[kBegin]; begin.is_shard()) {
    const Range& part = begin.parts[rank];
    local.held = Range{part.begin, part.end - 1};
  }
  return Attrs::of(local);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<RouteAttrs>();
  const int64_t T = call.rows(), E = call.in[0].cols(), k = a.top_k;
  const auto* logits = call.in[0].as<const float>();
  const float* bias = call.in[1].data ? call.in[1].as<const float>() : nullptr;
  auto* place = call.out[kPlace].as<int32_t>();
  for (int64_t t = 0; t < T; ++t) {
    choose_experts(a, {logits + t * E, static_cast<size_t>(E)}, bias, place + t * k,
                   call.out[kWeight].as<float>() + t * k);
  }
  call.part->count.expert_row =
      sort_choices(T, k, held_experts(a, E), place, call.out[kToken].as<int32_t>(),
                   call.out[kBegin].as<int32_t>());
}

// Indices of the n largest, the larger first and of equal ones the lower; -inf counts as any other.
void best(std::span<const float> x, int64_t n, int32_t* index) {
  int64_t found = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (found == n && !(x[i] > x[index[n - 1]])) continue;
    int64_t at = found < n ? found++ : n - 1;
    for (; at > 0 && x[i] > x[index[at - 1]]; --at) index[at] = index[at - 1];
    index[at] = static_cast<int32_t>(i);
  }
}

float largest(std::span<const float> x) {
  return *std::ranges::max_element(x);
}

// Scores for logits that are numbers, or -inf.
void to_scores(RouteScore score, std::span<float> s) {
  if (score == RouteScore::raw) return;
  if (score == RouteScore::sigmoid) {
    for (float& x : s) x = 1 / (1 + std::exp(-x));
    return;
  }
  const float max = largest(s);
  float sum = 0;
  for (float& x : s) {
    x = max == kLowest ? 1 : std::exp(x - max);
    sum += x;
  }
  for (float& x : s) x /= sum;
}

// Writes -inf over the experts in all groups but the best.
void drop_groups(const RouteAttrs& a, std::span<float> s) {
  const size_t size = s.size() / static_cast<size_t>(a.groups);
  std::array<float, kMaxExperts> value;
  std::array<int32_t, kMaxExperts> kept;
  const size_t groups = a.groups;
  for (size_t g = 0; g < groups; ++g) {
    const auto experts = s.subspan(g * size, size);
    std::array<int32_t, 2> two;
    best(experts, std::min<int64_t>(2, std::ssize(experts)), two.data());
    value[g] = experts[two[0]];
    if (a.group_score == GroupScore::two_best && size > 1) {
      value[g] += experts[two[1]];
    }
  }
  best({value.data(), groups}, a.kept_groups, kept.data());
  for (size_t g = 0; g < groups; ++g) {
    const auto end = kept.begin() + a.kept_groups;
    if (std::find(kept.begin(), end, static_cast<int32_t>(g)) != end) continue;
    std::ranges::fill(s.subspan(g * size, size), kLowest);
  }
}

}  // namespace

void choose_experts(const RouteAttrs& a, std::span<const float> logits, const float* bias,
                    int32_t* expert, float* weight) {
  const size_t E = logits.size();
  std::array<float, kMaxExperts> score, choice;
  for (size_t e = 0; e < E; ++e) score[e] = std::isnan(logits[e]) ? kLowest : logits[e];
  const std::span<float> s(score.data(), E), c(choice.data(), E);
  to_scores(a.score, s);
  std::ranges::copy(s, c.begin());
  for (size_t e = 0; bias && e < E; ++e) c[e] += bias[e];
  for (float& x : c) x = std::isnan(x) ? kLowest : x;
  if (a.groups > 1) drop_groups(a, c);
  best(c, a.top_k, expert);

  const size_t k = a.top_k;
  const std::span<float> w(weight, k);
  for (size_t j = 0; j < k; ++j) w[j] = s[expert[j]];
  if (a.weight == RouteWeight::softmax) to_scores(RouteScore::softmax, w);
  if (a.weight == RouteWeight::normalised) {
    float sum = kLeastSum;
    for (const float x : w) sum += x;
    for (float& x : w) x /= sum;
  }
  for (float& x : w) x *= a.scale;
}

int64_t sort_choices(int64_t T, int64_t k, Range held, int32_t* place, int32_t* token,
                     int32_t* begin) {
  const int64_t H = held.size();
  const auto own = [&](int32_t expert) { return held.begin <= expert && expert < held.end; };
  std::fill_n(begin, H + 1, 0);
  for (int64_t i = 0; i < T * k; ++i) {
    if (own(place[i])) ++begin[place[i] - held.begin + 1];
  }
  for (int64_t h = 0; h < H; ++h) begin[h + 1] += begin[h];
  std::array<int32_t, kMaxExperts> next;
  std::copy_n(begin, H, next.begin());
  for (int64_t i = 0; i < T * k; ++i) {
    const int32_t expert = std::exchange(place[i], -1);
    if (!own(expert)) continue;
    const int32_t row = next[expert - held.begin]++;
    token[row] = static_cast<int32_t>(i / k);
    place[i] = row;
  }
  return begin[H];
}

const OpDef kRoute = {.kind = "route",
                      .infer = infer,
                      .writes_extent = BatchAxis::expert_row,
                      .cost = cost,
                      .shard = shard,
                      .localize = localize,
                      .reference = reference};

std::string_view to_string(RouteScore score) {
  constexpr std::array<std::string_view, 3> kNames = {"softmax", "sigmoid", "raw"};
  return kNames[static_cast<size_t>(score)];
}

std::string_view to_string(RouteWeight weight) {
  constexpr std::array<std::string_view, 3> kNames = {"score", "normalised", "softmax"};
  return kNames[static_cast<size_t>(weight)];
}

std::string_view to_string(GroupScore score) {
  return score == GroupScore::max ? "max" : "two_best";
}

Route route(Builder& b, ValueId logits, ValueId bias, const RouteAttrs& attrs) {
  const std::vector<ValueId> out = b.op(kRoute, Attrs::of(attrs), {logits, bias});
  return {out[kWeight], out[kPlace], out[kToken], out[kBegin]};
}

}  // namespace braid::ops
