// The turned heads of divided attention as a single op.
#include "braid/ops/rope_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "braid/ops/norm.h"
#include "braid/ops/sequence.h"

namespace braid {
namespace {

using testing::ElementsAre;

constexpr int64_t kRows = 5, kHeads = 4, kKvHeads = 2, kD = 8;

struct Turned {
  bool normed = false;
  DType v = DType::bf16;
  float k_theta = 10000;
  bool reads_turned = false;
};

Program turned(const Turned& t) {
  Builder b("turned", {.shard = kRows});
  const auto x = [&](const char* name, int64_t heads, DType dtype) {
    return b.input(name, {dtype, {kRows, heads * kD}, BatchAxis::shard});
  };
  ValueId q = x("q", kHeads, DType::bf16), k = x("k", kKvHeads, DType::bf16);
  const ValueId v = x("v", kKvHeads, t.v);
  const ValueId positions = b.input("positions", {DType::i32, {kRows}, BatchAxis::shard});
  if (t.normed) {
    const ValueId w = b.weight("w", {DType::bf16, {kD}});
    const ops::RmsNormAttrs norm{.group = kD, .dtype = DType::bf16};
    q = ops::rms_norm(b, q, w, norm);
    k = ops::rms_norm(b, k, w, norm);
  }
  ops::RopeAttrs rope{.head_dim = kD, .rotary_dim = kD};
  q = ops::rope(b, q, positions, kNoValue, rope);
  rope.theta = t.k_theta;
  k = ops::rope(b, k, positions, kNoValue, rope);
  std::vector<ValueId> out;
  for (ValueId id : {q, k, v}) {
    out.push_back(b.op1(ops::kToSequence, Attrs::of(ops::ToSequenceAttrs{kD}), {id}));
  }
  if (t.reads_turned) out.push_back(q);
  return b.finish(out);
}

std::vector<std::string_view> fused(const Turned& t) {
  std::vector<std::string_view> kinds;
  for (const Op& op : fuse(turned(t), ops::rope_sequence_fusions()).ops) {
    kinds.push_back(op.def->kind);
  }
  return kinds;
}

TEST(RopeSequence, TakesTurnedHeadsAndTheirSequences) {
  EXPECT_THAT(fused({}), ElementsAre("rope_sequence"));
  EXPECT_THAT(fused({.normed = true}), ElementsAre("rope_sequence"));
  const Program before = turned({}), after = fuse(before, ops::rope_sequence_fusions());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(after.value(after.outputs[i]).type, before.value(before.outputs[i]).type);
  }
}

TEST(RopeSequence, LeavesOtherTypesTurnsAndReaders) {
  for (const Turned& t :
       {Turned{.v = DType::f32}, Turned{.k_theta = 500000}, Turned{.reads_turned = true}}) {
    EXPECT_THAT(fused(t), ElementsAre("rope", "rope", "to_sequence", "to_sequence", "to_sequence"));
  }
}

TEST(RopeSequence, ReferenceIsRopeThenCopy) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  const auto random = [&](int64_t cols) {
    std::vector<float> x(kRows * cols);
    for (float& f : x) f = normal(rng);
    return x;
  };
  std::vector<float> q = random(kHeads * kD), k = random(kKvHeads * kD), v = random(kKvHeads * kD);
  std::vector<int32_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 7);
  const auto view = [](auto& x, DType dtype, const Shape& shape) {
    return make_view(reinterpret_cast<std::byte*>(x.data()), dtype, shape);
  };
  const auto matrix = [&](std::vector<float>& x) {
    return view(x, DType::f32, {kRows, std::ssize(x) / kRows});
  };
  const TensorView at = view(positions, DType::i32, {kRows});
  constexpr int64_t kLive = 3;
  BatchPart part{};
  part.count.shard = kLive;
  const ops::RopeAttrs rope{.head_dim = kD, .rotary_dim = kD};
  std::vector<std::vector<float>> want, got;
  for (std::vector<float>* x : {&q, &k}) {
    std::vector<float>& y = want.emplace_back(x->size());
    const Op op{.def = &ops::kRope, .attrs = Attrs::of(rope)};
    const TensorView in[] = {matrix(*x), at, {}}, out[] = {matrix(y)};
    ops::kRope.reference({&op, in, out, BatchAxis::shard, &part});
  }
  want.push_back(v);
  for (const auto& x : want) got.emplace_back(x.size(), -1.f);
  const auto rows = [&](std::vector<float>& x) {
    return view(x, DType::f32, {1, kRows, std::ssize(x) / kRows / kD, kD});
  };
  const Op op{.def = &ops::kRopeSequence, .attrs = Attrs::of(ops::RopeAppendAttrs{rope})};
  const TensorView in[] = {matrix(q), matrix(k), matrix(v), at, {}, {}, {}};
  const TensorView out[] = {rows(got[0]), rows(got[1]), rows(got[2])};
  ops::kRopeSequence.reference({&op, in, out, BatchAxis::shard, &part});
  for (size_t i = 0; i < 3; ++i) {
    const auto live = std::ssize(want[i]) / kRows * kLive;
    EXPECT_TRUE(std::equal(got[i].begin(), got[i].begin() + live, want[i].begin()));
    EXPECT_EQ(std::count(got[i].begin() + live, got[i].end(), -1.f), std::ssize(got[i]) - live);
  }
}

}  // namespace
}  // namespace braid
