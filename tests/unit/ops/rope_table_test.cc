// Rotary tables of one to four position axes, on a part of a sequence, as turns of complex numbers.
#include "braid/ops/rope_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <numeric>
#include <random>

namespace braid {
namespace {

using Floats = std::vector<float>;

constexpr double kTheta = 10000;

TensorView view(Floats& data, const Shape& shape) {
  return make_view(reinterpret_cast<std::byte*>(data.data()), DType::f32, shape);
}

// Sizes of a grid's axes, the last varies fastest, and columns of each axis in a head.
struct Grid {
  std::vector<int64_t> sizes, dims;
  int64_t cells() const {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  }
  int64_t rotary() const { return std::accumulate(dims.begin(), dims.end(), int64_t{0}); }
  int64_t position(int64_t cell, size_t axis) const {
    for (size_t i = sizes.size() - 1; i > axis; --i) cell /= sizes[i];
    return cell % sizes[axis];
  }
  Floats table() const {
    std::vector<ops::RopeAxis> axes;
    for (size_t a = 0; a < sizes.size(); ++a) {
      axes.push_back({.dim = dims[a]});
      for (int64_t i = 0; i < cells(); ++i) {
        axes.back().positions.push_back(static_cast<double>(position(i, a)));
      }
    }
    return ops::make_rope_table(axes, kTheta);
  }
};

const Grid kGrids[] = {
    {{7}, {10}}, {{3, 5}, {4, 8}}, {{2, 3, 4}, {2, 6, 4}}, {{2, 1, 3, 2}, {2, 4, 2, 6}}};

Floats turned(const ops::RopeTableAttrs& a, Floats x, const Shape& shape, Floats table,
              const Shape& table_shape) {
  Floats y(x.size());
  const Op op{.def = &ops::kRopeTable, .attrs = Attrs::of(a)};
  const std::vector<TensorView> in = {view(x, shape), view(table, table_shape)};
  const std::vector<TensorView> out = {view(y, shape)};
  const std::vector<ValueType> types = {{DType::f32, shape}, {DType::f32, table_shape}};
  EXPECT_EQ(ops::kRopeTable.infer(op.attrs, types)[0].shape, shape);
  BatchPart part;
  ops::kRopeTable.reference({.op = &op, .in = in, .out = out, .part = &part});
  return y;
}

class RopeTable : public testing::TestWithParam<size_t> {
 protected:
  Floats random(int64_t n) {
    std::normal_distribution<float> normal;
    Floats x(static_cast<size_t>(n));
    for (float& v : x) v = normal(random_);
    return x;
  }
  const Grid& grid_ = kGrids[GetParam() - 1];
  const int64_t head_ = grid_.rotary() + 4, heads_ = 3, C_ = heads_ * head_;  // 4 columns stay
  const int64_t first_ = 3, L_ = first_ + grid_.cells() + 2;  // text before, pixels, a rest
  std::mt19937 random_{static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed())};
};

TEST_P(RopeTable, TurnsPairsByTheirAxis) {
  const int64_t B = 2;
  const Floats x = random(B * L_ * C_);
  const Floats y = turned({.head_dim = head_, .batch = B, .first = first_}, x, {B * L_, C_},
                          grid_.table(), {grid_.cells(), grid_.rotary()});
  for (int64_t row = 0; row < B * L_; ++row) {
    const int64_t cell = (row % L_) - first_;
    Floats wanted(x.begin() + row * C_, x.begin() + (row + 1) * C_);
    for (int64_t head = 0; head < C_ && cell >= 0 && cell < grid_.cells(); head += head_) {
      auto* pair = reinterpret_cast<std::complex<float>*>(wanted.data() + head);
      for (size_t axis = 0; axis < grid_.dims.size(); ++axis) {
        const auto dim = static_cast<double>(grid_.dims[axis]);
        const auto at = static_cast<double>(grid_.position(cell, axis));
        for (int64_t i = 0; i < grid_.dims[axis] / 2; ++i, ++pair) {
          const double angle =
              at * std::exp(-2.0 * static_cast<double>(i) / dim * std::log(kTheta));
          *pair = std::complex<float>(std::complex<double>(*pair) * std::polar(1.0, angle));
        }
      }
    }
    for (int64_t c = 0; c < C_; ++c) {
      ASSERT_NEAR(y[row * C_ + c], wanted[c], 2e-6) << "row " << row << " column " << c;
    }
  }
}

// Scores of a query and a key depend on the differences of their positions alone, along all axes.
TEST_P(RopeTable, ScoresDependOnDistances) {
  const int64_t n = grid_.cells(), D = grid_.rotary();
  const Floats one_q = random(D), one_k = random(D);
  Floats q, k;
  for (int64_t i = 0; i < n; ++i) {
    q.insert(q.end(), one_q.begin(), one_q.end());
    k.insert(k.end(), one_k.begin(), one_k.end());
  }
  q = turned({.head_dim = D}, q, {n, D}, grid_.table(), {n, D});
  k = turned({.head_dim = D}, k, {n, D}, grid_.table(), {n, D});
  std::map<std::vector<int64_t>, float> scores;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      std::vector<int64_t> distance;
      for (size_t a = 0; a < grid_.dims.size(); ++a) {
        distance.push_back(grid_.position(i, a) - grid_.position(j, a));
      }
      const float score =
          std::inner_product(q.begin() + i * D, q.begin() + (i + 1) * D, k.begin() + j * D, 0.f);
      EXPECT_NEAR(scores.try_emplace(distance, score).first->second, score, 2e-5);
    }
  }
  EXPECT_GT(scores.size(), static_cast<size_t>(n));
}

// Ranks with any share of the rows, some without a row that turns, make the rows of one rank.
TEST_P(RopeTable, SharesOfRowsEqualTheWhole) {
  const ops::RopeTableAttrs a{.head_dim = head_, .first = first_};
  const Shape shape = {L_, C_}, table_shape = {grid_.cells(), grid_.rotary()};
  const Floats x = random(L_ * C_), table = grid_.table();
  const Floats whole = turned(a, x, shape, table, table_shape);
  const std::vector<ValueType> types = {{DType::f32, shape}, {DType::f32, table_shape}};
  for (int cut = 0; cut < 20; ++cut) {
    std::uniform_int_distribution<int64_t> pick(0, L_);
    std::vector<int64_t> ends = {pick(random_), pick(random_), pick(random_), L_};
    std::ranges::sort(ends);
    std::vector<Range> parts;
    for (int64_t begin = 0; const int64_t end : ends) {
      parts.push_back({begin, end});
      begin = end;
    }
    const std::vector<Placement> placed = {Placement::shard(0, parts), Placement::replicated()};
    const ShardRule rule = ops::kRopeTable.shard(Attrs::of(a), types, placed, 4);
    for (size_t r = 0; r < parts.size(); ++r) {
      const Range rows = parts[r], turns = rule.inputs[1].parts.at(r);
      if (rows.empty()) continue;
      const auto local = ops::kRopeTable.localize(Attrs::of(a), types, rule, static_cast<int>(r))
                             .as<ops::RopeTableAttrs>();
      const int64_t D = grid_.rotary();
      const Floats own(x.begin() + rows.begin * C_, x.begin() + rows.end * C_);
      const Floats own_table(table.begin() + turns.begin * D, table.begin() + turns.end * D);
      const Floats y = turned(local, own, {rows.size(), C_}, own_table, {turns.size(), D});
      const Floats wanted(whole.begin() + rows.begin * C_, whole.begin() + rows.end * C_);
      EXPECT_EQ(y, wanted) << "rows " << rows.begin << " to " << rows.end;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Axes, RopeTable, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace braid
