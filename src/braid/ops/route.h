#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "braid/program/builder.h"

namespace braid::ops {

// Which experts each token takes, and the order of the rows that this makes.
// Inputs: logits f32 [T, E]; bias f32 [E] or absent, which counts for the choice alone.
// Outputs:
//   weight   f32 [T, k]  of a token's choices, the best first
//   place    i32 [T, k]  the row of each choice; -1: another rank has the expert
//   token    i32 [R]     of each row, counted from the launch's first; R = T k is the capacity
//   begin    i32 [H + 1] the rank's expert h has the rows begin[h] .. begin[h + 1], by token; a
//                        rank has H experts, all E unless ranks divide the experts
// The op writes the extent of the axis expert_row: begin[H]. Tokens that only pad a batch make no
// rows.
//
// With s the score of an expert, a token takes the k experts of the largest s + bias among those of
// the kept groups, and of equal ones the lower. A logit that is not a number counts as -inf. The
// weight comes from s, never from s + bias. Sums are f32.
// Sharding: tokens may be divided over ranks, or experts (logits are then asked for as if their
// columns were divided); the rows are then a rank's own.
enum class RouteScore : uint8_t { softmax, sigmoid, raw };        // raw: the logit itself
enum class RouteWeight : uint8_t { score, normalised, softmax };  // softmax: of the chosen scores
enum class GroupScore : uint8_t { max, two_best };  // the best s + bias, or the sum of two
std::string_view to_string(RouteScore score);
std::string_view to_string(RouteWeight weight);
std::string_view to_string(GroupScore score);

struct RouteAttrs {
  int64_t top_k = 1;
  RouteScore score = RouteScore::softmax;
  RouteWeight weight = RouteWeight::normalised;
  float scale = 1;     // of the weights, applied last
  int64_t groups = 1;  // equal groups of neighbouring experts
  int64_t kept_groups = 1;
  GroupScore group_score = GroupScore::max;
  std::optional<Range> held = {};  // this rank's experts; empty: all
  bool operator==(const RouteAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("top_k", top_k);
    f("score", to_string(score));
    f("weight", to_string(weight));
    if (scale != 1) f("scale", scale);
    if (held) f("experts", fmt::format("{}..{}", held->begin, held->end));
    if (groups == 1) return;
    f("groups", groups);
    f("kept_groups", kept_groups);
    f("group_score", to_string(group_score));
  }
};

constexpr int64_t kMaxExperts = 1024;

extern const OpDef kRoute;

struct Route {
  ValueId weight = kNoValue;
  ValueId place = kNoValue;
  ValueId token = kNoValue;
  ValueId begin = kNoValue;
};
Route route(Builder& b, ValueId logits, ValueId bias, const RouteAttrs& attrs);

// One token's choice, the work of both the reference and the CPU kernel: k experts, the best first,
// and their weights. logits f32 [E]; bias f32 [E] or null; expert i32 [k]; weight f32 [k].
void choose_experts(const RouteAttrs& attrs, std::span<const float> logits, const float* bias,
                    int32_t* expert, float* weight);

// The rows that choices of the experts `held` make, by expert and then by token. On entry `place`
// [T, k] holds the chosen experts, on return their rows, or -1. token [T k] is written up to the
// number of rows, which is returned; begin [held.size() + 1] whole.
int64_t sort_choices(int64_t T, int64_t k, Range held, int32_t* place, int32_t* token,
                     int32_t* begin);

// A rank's experts among E logits.
inline Range held_experts(const RouteAttrs& attrs, int64_t E) {
  return attrs.held.value_or(Range{0, E});
}

}  // namespace braid::ops
