// The ops of level attention but thin_keys, against their scalar references.
#include <numeric>

#include "backend/cuda/dense/op_case.h"
#include "braid/ops/ordered_queries.h"
#include "braid/ops/paid_keys.h"

namespace braid::cuda::test {
namespace {

struct Heads {
  DType dtype;
  int64_t kv, group, D;
};
const Heads kHeads[] = {{DType::bf16, 2, 4, 128}, {DType::bf16, 1, 1, 64}, {DType::f16, 3, 2, 96},
                        {DType::bf16, 1, 7, 40},  {DType::bf16, 2, 3, 20}, {DType::f32, 2, 2, 64}};

// Queries that see whole segments, parts of segments, or nothing; keys that several see, or nobody.
ops::PaidKeysAttrs paid_attrs(const Heads& h) {
  ops::PaidKeysAttrs attrs;
  ops::SegmentAttentionAttrs& a = attrs.segments;
  a.heads = h.kv * h.group, a.kv_heads = h.kv, a.group = h.group;
  a.scale = 1 / std::sqrt(static_cast<float>(h.D));
  a.window_right = 0;
  a.kv = {{.kv = 0, .row = 3, .rows = 100, .position = 0},
          {.kv = 1, .row = 61, .rows = 67, .position = 100},
          {.kv = 0, .row = 105, .rows = 70, .position = 500},  // the first run's own keys
          {.kv = 2, .row = 1, .rows = 1, .position = 0},
          {.kv = 1, .row = 10, .rows = 150, .position = 30},
          {.kv = 0, .row = 180, .rows = 9, .position = 700},
          {.kv = 2, .row = 0, .rows = 1, .position = 9000}};
  a.q = {{.row = 5, .rows = 33, .position = 537, .kv_begin = 0, .kv_end = 3},
         {.row = 40, .rows = 0, .position = 0, .kv_begin = 0, .kv_end = 3},
         {.row = 40, .rows = 9, .position = 700, .kv_begin = 3, .kv_end = 6},
         {.row = 50, .rows = 1, .position = 8, .kv_begin = 6, .kv_end = 7},
         {.row = 52, .rows = 16, .position = 33, .kv_begin = 0, .kv_end = 1}};
  return attrs;
}

TEST(LevelOpsOnGpu, PaidKeys) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (const Heads& h : kHeads) {
    const auto rows = [&](int64_t n, int64_t heads) {
      return ValueType{h.dtype, {1, n, heads, h.D}};
    };
    check({.def = &ops::kPaidKeys,
           .attrs = Attrs::of(paid_attrs(h)),
           .in = {rows(70, h.kv * h.group), rows(190, h.kv), rows(161, h.kv), rows(2, h.kv)},
           .tolerance = 1e-4},
          seed++);
    ops::PaidKeysAttrs none = paid_attrs(h);
    none.segments.q.clear();
    check({.def = &ops::kPaidKeys,
           .attrs = Attrs::of(none),
           .in = {rows(70, h.kv * h.group), rows(190, h.kv), rows(161, h.kv), rows(2, h.kv)}},
          seed++);
  }
}

// A permutation of each part's rows, for each head: [rows, heads].
std::vector<int32_t> orders(const std::vector<int64_t>& parts, int64_t heads, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> all;
  for (int64_t rows : parts) {
    const size_t first = all.size();
    all.resize(first + static_cast<size_t>(rows * heads));
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<int32_t> order(static_cast<size_t>(rows));
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, rng);
      for (int64_t i = 0; i < rows; ++i) all[first + i * heads + h] = order[i];
    }
  }
  return all;
}

TEST(LevelOpsOnGpu, KeyScores) {
  REQUIRE_DEVICE();
  for (int64_t heads : {1, 3}) {
    const ops::KeyScoresAttrs attrs{
        .rows = 300,
        .parts = {{.row = 0,
                   .rows = 201,
                   .paid_row = 7,
                   .queries = 32,
                   .sees = 170,
                   .sums = {{.paid = 1, .row = 2, .rows = 90}, {.paid = 2, .row = 40, .rows = 201}},
                   .readers = {{.keys = 90, .queries = 32}, {.keys = 201, .queries = 5}}},
                  {.row = 201, .rows = 99, .paid_row = 208, .queries = 1, .sees = 99}}};
    const auto paid = [&](int64_t rows) { return ValueType{DType::f32, {1, rows, heads, 1}}; };
    check({.def = &ops::kKeyScores,
           .attrs = Attrs::of(attrs),
           .in = {{DType::i32, {1, 300, heads, 1}}, paid(310), paid(95), paid(250)},
           .integers = orders({201, 99}, heads, 5)},
          11);
  }
}

TEST(LevelOpsOnGpu, OrderedQueries) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (const Heads& h : kHeads) {
    const int64_t n = 190, heads = h.kv * h.group;
    const ops::OrderedQueriesAttrs attrs{.group = h.group,
                                         .parts = {{0, 101}, {101, 0}, {101, 89}}};
    const ValueType order{DType::i32, {1, n, h.kv, 1}};
    const std::vector<int32_t> integers = orders({101, 89}, h.kv, seed);
    check({.def = &ops::kOrderQueries,
           .attrs = Attrs::of(attrs),
           .in = {{h.dtype, {1, n, heads, h.D}}, order},
           .tolerance = 0x1p-149,
           .integers = integers},
          seed++);
    const ValueType sums{DType::f32, {1, n, heads}};
    check({.def = &ops::kRestoreStates,
           .attrs = Attrs::of(attrs),
           .in = {{DType::f32, {1, n, heads, h.D}}, sums, sums, order},
           .tolerance = 0x1p-149,
           .integers = integers},
          seed++);
  }
}

}  // namespace
}  // namespace braid::cuda::test
