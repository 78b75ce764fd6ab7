// States of attention over the keys that one rank holds, and their merge, against the scalar
// references and against attention over all keys at once.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/attention_state.h"

namespace braid::cpu {
namespace {

using namespace testing;

struct Shape {
  int64_t head_dim = 64;
  int64_t kv_heads = 3;
  int64_t group = 3;
  DType dtype = DType::f32;
  float softcap = 0;
  std::vector<Range> keys;  // [T] that each query sees of its sequence
  int64_t sequences = 1;
  std::vector<int64_t> chunks = {};  // first keys of dual chunks behind the first
};

// Runs an op by its reference or by its kernel. Outputs begin as poison.
std::vector<float> run(const OpDef& def, Attrs attrs, const std::vector<ValueType>& types,
                       std::vector<std::vector<std::byte>>& data, int64_t shard, int threads,
                       Isa isa, bool reference) {
  Op op;
  op.def = &def;
  op.attrs = std::move(attrs);
  const std::vector<ValueType> made = def.infer(op.attrs, types);
  std::vector<TensorView> in;
  for (size_t i = 0; i < types.size(); ++i) {
    in.push_back(make_view(data[i].data(), types[i].dtype, types[i].shape));
  }
  std::vector<float> result(static_cast<size_t>(made[0].shape.elems()), std::nanf(""));
  const std::vector<TensorView> out{
      make_view(reinterpret_cast<std::byte*>(result.data()), DType::f32, made[0].shape)};
  BatchPart part{.begin = {}, .count = {.token = shard, .sequence = 1, .row = 1, .shard = shard}};
  const OpCall call{&op, in, out, types[0].axis, &part};
  if (reference) {
    def.reference(call);
    return result;
  }
  KernelTable table(threads);
  add_cpu_kernels(table, isa);
  const Kernel& kernel = table.at(def.kind);
  const int64_t bytes = kernel.info(op, types, made, threads).workspace_bytes;
  std::vector<float> workspace(static_cast<size_t>(bytes / 4 + 16), std::nanf(""));
  auto* begin =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<int64_t>(workspace.data()), 64));
  const BoundKernel bound = kernel.bind({.call = call, .workspace = begin, .threads = threads});
  on_team(threads, [&](const Team& team) { bound(team); });
  return result;
}

template <class T>
std::vector<std::byte> bytes(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

// A cache of which only what may be read holds numbers.
class Held {
 public:
  Held(const Shape& shape, uint32_t seed) : shape_(shape), random_(seed) {
    const auto T = std::ssize(shape.keys);
    int64_t most = 1;
    for (const Range& keys : shape.keys) most = std::max(most, keys.end);
    const int64_t K = most + 5, blocks = shape.sequences * K;
    types_ = {
        {DType::f32, {1, T, shape.kv_heads * shape.group, shape.head_dim}, BatchAxis::sequence},
        {shape.dtype, {blocks, 8, shape.kv_heads, shape.head_dim}},
        {shape.dtype, {blocks, 8, shape.kv_heads, shape.head_dim}},
        {DType::i32, {shape.sequences, K}},
        {DType::i32, {T}},
        {DType::i32, {rows_of_begin(), T}},
        {DType::i32, {T}}};
    const int64_t row = shape.kv_heads * shape.head_dim;
    std::vector<int32_t> order(static_cast<size_t>(blocks * 8)), slots, rows, begin, end;
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::shuffle(order, random_);
    slots.assign(static_cast<size_t>(shape.sequences * K), 1 << 30);
    for (size_t i = 1; i <= 2; ++i) {
      const std::vector<float> nan(static_cast<size_t>(row), std::nanf(""));
      data_[i].resize(static_cast<size_t>(bytes_of(types_[i])));
      for (int64_t s = 0; s < blocks * 8; ++s) put(i, s, nan);
    }
    for (int64_t t = 0; t < T; ++t) {
      const int64_t s = t % shape.sequences;
      rows.push_back(static_cast<int32_t>(s));
      begin.push_back(static_cast<int32_t>(shape.keys[static_cast<size_t>(t)].begin));
      end.push_back(static_cast<int32_t>(shape.keys[static_cast<size_t>(t)].end));
      for (int64_t i = begin.back(); i < end.back(); ++i) {
        int32_t& slot = slots[static_cast<size_t>(s * K + i)];
        if (slot != 1 << 30) continue;
        slot = order.back();
        order.pop_back();
        for (size_t v : {1u, 2u}) put(v, slot, random_floats(random_, row));
      }
    }
    std::vector<int32_t> begins(static_cast<size_t>(T), 1 << 30);  // of another window
    begins.insert(begins.end(), begin.begin(), begin.end());
    for (const int64_t first : shape.chunks) {
      for (const Range& keys : shape.keys) {
        begins.push_back(static_cast<int32_t>(std::clamp(first, keys.begin, keys.end)));
      }
    }
    for (int32_t t = 0; !shape.chunks.empty() && t < T; ++t) begins.push_back(kPosition + t);
    data_[0] = bytes(random_floats(random_, types_[0].shape.elems()));
    data_[3] = bytes(slots);
    data_[4] = bytes(rows);
    data_[5] = bytes(begins);
    data_[6] = bytes(end);
  }

  std::vector<float> states(int threads, Isa isa, bool reference) {
    ops::AttentionStateAttrs attrs{
        .attention = {.head_dim = shape_.head_dim,
                      .group = shape_.group,
                      .scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim)),
                      .softcap = shape_.softcap},
        .window_row = 1};
    if (!shape_.chunks.empty()) {
      attrs.chunks = std::ssize(shape_.chunks) + 1;
      attrs.attention.dual = {
          .chunk = 100,
          .reach = 130,
          .original = 50,
          .rope = {.head_dim = shape_.head_dim, .rotary_dim = shape_.head_dim, .theta = 100}};
    }
    return run(ops::kAttentionState, Attrs::of(attrs), types_, data_, 0, threads, isa, reference);
  }
  // Of query t alone, over other keys of the same sequence.
  void see(int64_t t, const Range& keys) {
    const int32_t begin = static_cast<int32_t>(keys.begin), end = static_cast<int32_t>(keys.end);
    std::memcpy(&data_[5][static_cast<size_t>(4 * (types_[6].shape[0] + t))], &begin, 4);
    std::memcpy(&data_[6][static_cast<size_t>(4 * t)], &end, 4);
  }

 private:
  static constexpr int32_t kPosition = 290;  // of the first query
  int64_t rows_of_begin() const {
    return shape_.chunks.empty() ? 2 : std::ssize(shape_.chunks) + 3;
  }
  void put(size_t operand, int64_t slot, const std::vector<float>& row) {
    const auto n = std::ssize(row);
    quantize_row(shape_.dtype, row.data(),
                 &data_[operand][static_cast<size_t>(bytes_of(shape_.dtype, slot * n))], n);
  }

  const Shape shape_;
  std::mt19937 random_;
  std::vector<ValueType> types_;
  std::vector<std::vector<std::byte>> data_ = std::vector<std::vector<std::byte>>(7);
};

std::vector<float> merge(const std::vector<std::vector<float>>& parts, int64_t room, int64_t live,
                         int64_t heads, int64_t D, int threads, bool reference) {
  const auto P = std::ssize(parts);
  std::vector<ValueType> types{{DType::f32, {1, P * room, heads, D + 2}, BatchAxis::sequence}};
  std::vector<float> states(static_cast<size_t>(types[0].shape.elems()), std::nanf(""));
  for (int64_t p = 0; p < P; ++p) {
    std::ranges::copy(parts[static_cast<size_t>(p)], states.begin() + p * room * heads * (D + 2));
  }
  std::vector<std::vector<std::byte>> data{bytes(states)};
  return run(ops::kMergeStates, Attrs::of(ops::MergeStatesAttrs{static_cast<int>(P)}), types, data,
             live, threads, detected_isa(), reference);
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i]) || std::isnan(want[i])) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << i;
      if (std::isinf(want[i])) {
        ASSERT_EQ(got[i], want[i]) << i;
      }
      continue;
    }
    ASSERT_NEAR(got[i], want[i], bound * std::max(1.0f, std::abs(want[i]))) << i;
  }
}

TEST(AttentionState, EqualsTheReference) {
  const std::vector<Shape> shapes = {
      {.keys = {{0, 1}}},
      {.keys = {{0, 0}, {0, 64}, {3, 65}, {0, 0}}},
      {.head_dim = 128, .kv_heads = 2, .group = 4, .dtype = DType::f16, .keys = {{5, 700}}},
      {.head_dim = 40, .kv_heads = 1, .group = 7, .keys = {{0, 129}, {128, 129}}},
      {.head_dim = 96, .dtype = DType::bf16, .softcap = 30, .keys = {{0, 33}}, .sequences = 1},
      {.keys = {{0, 9}, {0, 5000}, {4, 10}, {0, 77}}, .sequences = 2},
      {.group = 6, .keys = {{0, 70}, {0, 90}, {0, 9}, {0, 0}}, .chunks = {30, 75}},
      {.keys = {{0, 900}, {0, 901}}, .chunks = {0, 101, 101, 700}},
  };
  for (size_t i = 0; i < shapes.size(); ++i) {
    SCOPED_TRACE(fmt::format("shape {}", i));
    Held held(shapes[i], static_cast<uint32_t>(i + 1));
    const auto want = held.states(1, Isa::baseline, true);
    for (Isa isa : usable_isas()) {
      const auto one = held.states(1, isa, false);
      expect_near(one, want, 2e-4);
      EXPECT_EQ(std::memcmp(held.states(3, isa, false).data(), one.data(), one.size() * 4), 0)
          << "the team's size changes bits, " << name(isa);
    }
  }
}

// 3,072 keys and 64 more, as after a prefix: cut anywhere, with parts that hold nothing. A
// logarithm of another base, denominators of another maximum or a lost part would show.
TEST(AttentionState, PartsMergeToTheWhole) {
  constexpr int64_t kKeys = 3072 + 64, kHeads = 9, kD = 64;
  Held held({.keys = {{0, kKeys}}}, 17);
  const auto whole = merge({held.states(1, Isa::baseline, true)}, 1, 1, kHeads, kD, 1, true);
  for (const std::vector<int64_t>& cuts :
       std::vector<std::vector<int64_t>>{{3072}, {0, 3072}, {1, 1, 2000, 3135}, {3136, 3136}}) {
    std::vector<std::vector<float>> parts;
    int64_t begin = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const int64_t end = i < cuts.size() ? cuts[i] : kKeys;
      held.see(0, {begin, end});
      parts.push_back(held.states(2, detected_isa(), false));
      begin = end;
    }
    expect_near(merge(parts, 1, 1, kHeads, kD, 1, true), whole, 1e-5);
    for (int threads : {1, 3}) {
      expect_near(merge(parts, 1, 1, kHeads, kD, threads, false), whole, 1e-5);
    }
    // It would: a maximum in base 2 is another one.
    auto base2 = parts;
    for (auto& part : base2) {
      for (int64_t h = 0; h < kHeads; ++h) {
        part[static_cast<size_t>(h * (kD + 2) + kD + 1)] *= std::numbers::log2e_v<float>;
      }
    }
    double worst = 0;
    const auto wrong = merge(base2, 1, 1, kHeads, kD, 1, false);
    for (size_t i = 0; i < wrong.size(); ++i) {
      worst = std::max<double>(worst, std::abs(wrong[i] - whole[i]));
    }
    if (std::ranges::count(cuts, kKeys) == 0) {  // several parts have keys
      EXPECT_GT(worst, 1e-4);
    }
  }
}

// Rows behind the merged ones come from a rank's own states.
TEST(MergeStates, OwnRowsFollow) {
  constexpr int64_t kHeads = 3, kD = 16, kMerged = 2, kRows = 5, kState = kHeads * (kD + 2);
  Held held(
      {.head_dim = kD, .kv_heads = 3, .group = 1, .keys = {{0, 7}, {0, 0}, {2, 9}, {0, 0}, {0, 3}}},
      5);
  const std::vector<float> own = held.states(1, detected_isa(), false);
  const std::vector<float> part(own.begin(), own.begin() + kMerged * kState);
  std::vector<float> poisoned(2 * kMerged * kState, std::nanf(""));  // rows that are not read
  poisoned.insert(poisoned.end(), own.begin() + kMerged * kState, own.end());
  std::vector<float> both = part;
  both.insert(both.end(), part.begin(), part.end());
  const std::vector<ValueType> types{
      {DType::f32, {1, 2 * kMerged, kHeads, kD + 2}, BatchAxis::sequence},
      {DType::f32, {1, kMerged + kRows, kHeads, kD + 2}, BatchAxis::sequence}};
  const auto want = merge({own}, kRows, kRows, kHeads, kD, 1, true);
  for (const int64_t live : {1, 3, 5}) {
    for (const bool reference : {true, false}) {
      std::vector<std::vector<std::byte>> data{bytes(both), bytes(poisoned)};
      const auto got = run(ops::kMergeStates, Attrs::of(ops::MergeStatesAttrs{2}), types, data,
                           live, 2, detected_isa(), reference);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const bool there = static_cast<int64_t>(i) / (kHeads * kD) < live;
        ASSERT_EQ(std::isnan(got[i]), !there) << i;
        if (there) {
          ASSERT_NEAR(got[i], want[i], 1e-6) << i;
        }
      }
    }
  }
}

TEST(MergeStates, WritesLiveRowsAlone) {
  constexpr int64_t kHeads = 3, kD = 16;
  Held held({.head_dim = kD, .kv_heads = 3, .group = 1, .keys = {{0, 7}, {0, 0}, {2, 9}}}, 3);
  const auto part = held.states(1, detected_isa(), false);
  for (int64_t live : {0, 2, 3}) {
    for (bool reference : {true, false}) {
      const auto out = merge({part, part}, 3, live, kHeads, kD, 2, reference);
      for (size_t i = 0; i < out.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / (kHeads * kD);
        ASSERT_EQ(std::isnan(out[i]), row >= live) << i;
        if (row == 1 && live > 1) {
          ASSERT_EQ(out[i], 0) << "a query without keys";
        }
      }
    }
  }
}

// States as segment attention leaves them, over parts of the keys: O', l and m apart. Where a part
// has no key, O' and l hold anything.
TEST(PackStates, PartsBecomeOneState) {
  constexpr int64_t kHeads = 3, kD = 20, kQueries = 4;
  constexpr int kParts = 3;
  Held held({.head_dim = kD,
             .kv_heads = 3,
             .group = 1,
             .keys = {{0, 7},
                      {0, 0},
                      {2, 9},
                      {1, 4},
                      {0, 0},
                      {0, 0},
                      {3, 8},
                      {0, 0},
                      {5, 6},
                      {0, 0},
                      {0, 3},
                      {0, 9}}},
            11);
  const std::vector<float> states = held.states(1, detected_isa(), true);
  std::vector<float> sums, l, m;
  for (size_t row = 0; row < states.size() / (kD + 2); ++row) {
    const float* state = &states[row * (kD + 2)];
    const bool none = std::isinf(state[kD + 1]);
    for (int64_t d = 0; d < kD; ++d) sums.push_back(none ? std::nanf("") : state[d]);
    l.push_back(none ? std::nanf("") : state[kD]);
    m.push_back(state[kD + 1]);
  }
  const std::vector<ValueType> types{
      {DType::f32, {1, kParts * kQueries, kHeads, kD}, BatchAxis::sequence},
      {DType::f32, {1, kParts * kQueries, kHeads}, BatchAxis::sequence},
      {DType::f32, {1, kParts * kQueries, kHeads}, BatchAxis::sequence}};
  std::vector<std::vector<float>> parts;
  for (int64_t p = 0; p < kParts; ++p) {
    const int64_t size = kQueries * kHeads * (kD + 2);
    parts.emplace_back(states.begin() + p * size, states.begin() + (p + 1) * size);
  }
  const auto want = merge(parts, kQueries, kQueries, kHeads, kD, 1, true);
  for (int threads : {0, 1, 3}) {
    std::vector<std::vector<std::byte>> data{bytes(sums), bytes(l), bytes(m)};
    const auto packed = run(ops::kPackStates, Attrs::of(ops::PackStatesAttrs{kParts}), types, data,
                            0, std::max(threads, 1), detected_isa(), threads == 0);
    for (size_t row = 0; row < packed.size() / (kD + 2); ++row) {
      float top = -INFINITY;
      for (size_t p = 0; p < kParts; ++p) top = std::max(top, m[p * kQueries * kHeads + row]);
      ASSERT_EQ(packed[row * (kD + 2) + kD + 1], top) << "row " << row;
    }
    expect_near(merge({packed}, kQueries, kQueries, kHeads, kD, 1, true), want, 1e-6);
  }
}

}  // namespace
}  // namespace braid::cpu
