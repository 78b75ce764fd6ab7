// The order and copy of a part's most important keys by the CPU's kernel: whole rows in the order
// of importances that this test computes by itself, ties by position, the same bits on every team.
#include <algorithm>
#include <numeric>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/thin_keys.h"

namespace braid::cpu {
namespace {

using namespace testing;
using By = ops::ThinnedPart::By;

struct Case {
  DType dtype = DType::f32;
  int64_t heads = 2, group = 3, D = 20;
  int64_t q_rows = 0, k_rows = 0;
  std::vector<ops::ThinnedPart> parts;
  int64_t recent = 16;
  bool equal = false;  // all scores are

  ops::ThinKeysAttrs attrs() const {
    ops::ThinKeysAttrs a{
        .group = group, .scale = 0.3f, .recent = recent, .rows = 2, .parts = parts};
    for (const ops::ThinnedPart& p : parts) {
      a.rows += p.keep;
      a.order_rows += p.rows;
    }
    return a;
  }
  By by() const { return parts[0].by; }
};

class Thinning {
 public:
  Thinning(const Case& c, uint32_t seed) : c_(c), attrs_(c.attrs()) {
    std::mt19937 random(seed);
    const int64_t q_heads = c.heads * c.group;
    types_ = {{c.dtype, {1, c.q_rows, q_heads, c.D}},
              {c.dtype, {1, c.k_rows, c.heads, c.D}},
              {c.dtype, {1, c.k_rows, c.heads, c.D}}};
    if (c.by() == By::probes) types_.push_back({c.dtype, {1, c.q_rows, q_heads, c.D}});
    if (c.by() == By::scores) types_.push_back({DType::f32, {1, c.q_rows, c.heads, 1}});
    for (size_t i = 0; i < types_.size(); ++i) {
      const bool scores = i == 0 || i == 3;
      std::vector<float> x = random_floats(random, types_[i].shape.elems(), 2);
      for (float& v : x) v = scores && c.equal ? 0 : i == 3 && c.by() == By::scores ? v * v : v;
      in_.emplace_back(static_cast<size_t>(bytes_of(types_[i])));
      quantize_row(types_[i].dtype, x.data(), in_[i].data(), std::ssize(x));
      dequantize_row(types_[i].dtype, in_[i].data(), x.data(), std::ssize(x));
      values_.push_back(x);
    }
  }

  // The bytes of all outputs, which begin as poison.
  std::vector<std::vector<std::byte>> run(int threads, Isa isa) {
    Op op{.def = &ops::kThinKeys, .attrs = Attrs::of(attrs_)};
    const std::vector<ValueType> out_types = op.def->infer(op.attrs, types_);
    std::vector<std::vector<std::byte>> made;
    std::vector<TensorView> in, out;
    for (size_t i = 0; i < types_.size(); ++i) {
      in.push_back(make_view(in_[i].data(), types_[i].dtype, types_[i].shape));
    }
    for (const ValueType& type : out_types) {
      made.emplace_back(static_cast<size_t>(bytes_of(type)), std::byte{0xa5});
    }
    for (size_t i = 0; i < made.size(); ++i) {
      out.push_back(make_view(made[i].data(), out_types[i].dtype, out_types[i].shape));
    }
    BatchPart part{};
    const OpCall call{&op, in, out, BatchAxis::sequence, &part};
    KernelTable table(threads);
    add_cpu_kernels(table, isa);
    const BoundKernel bound = table.at(op.def->kind).bind({.call = call, .threads = threads});
    on_team(threads, [&](const Team& team) { bound(team); });
    return made;
  }

  // What queries that see a key pay it in the mean, in f64.
  std::vector<double> importances(const ops::ThinnedPart& p, int64_t h) const {
    std::vector<double> all;
    for (int64_t j = 0; j < p.rows; ++j) {
      if (p.by == By::scores) {
        all.push_back(at(3, p.q_row + j, h)[0]);
        continue;
      }
      double paid = 0;
      int64_t readers = 0;
      for (int64_t t = std::max<int64_t>(0, j + 1 - p.sees); t < p.queries; ++t, ++readers) {
        for (int64_t head = h * c_.group; head < (h + 1) * c_.group; ++head) {
          const float* q = at(p.by == By::probes ? 3 : 0, p.q_row + t, head);
          double sum = 0;
          for (int64_t i = 0; i < std::min(p.rows, p.sees + t); ++i) sum += weight(q, p, i, h);
          paid += weight(q, p, j, h) / sum;
        }
      }
      all.push_back(paid / static_cast<double>(readers));
    }
    return all;
  }

  void expect(const std::vector<std::vector<std::byte>>& made) const {
    const auto row_bytes = static_cast<size_t>(bytes_of(c_.dtype, c_.D));
    const auto heads = static_cast<size_t>(c_.heads);
    size_t first = 0, to = 0;
    for (const ops::ThinnedPart& p : attrs_.parts) {
      for (size_t h = 0; h < heads; ++h) {
        SCOPED_TRACE(fmt::format("{} of {} keys, head {}", p.keep, p.rows, h));
        const std::vector<double> paid = importances(p, static_cast<int64_t>(h));
        std::vector<int32_t> order(static_cast<size_t>(p.rows));
        for (size_t i = 0; i < order.size(); ++i) {
          std::memcpy(&order[i], made[2].data() + 4 * ((first + i) * heads + h), 4);
        }
        expect_order(p, paid, order);
        for (size_t i = 0; i < static_cast<size_t>(p.keep); ++i) {
          const auto from = static_cast<size_t>(p.k_row + order[i]) * heads + h;
          for (size_t v : {0u, 1u}) {
            ASSERT_EQ(std::memcmp(made[v].data() + ((to + i) * heads + h) * row_bytes,
                                  in_[1 + v].data() + from * row_bytes, row_bytes),
                      0)
                << "row " << i;
          }
        }
      }
      first += static_cast<size_t>(p.rows);
      to += static_cast<size_t>(p.keep);
    }
    for (size_t v : {0u, 1u}) {
      const auto behind = made[v].begin() + static_cast<ptrdiff_t>(to * heads * row_bytes);
      EXPECT_TRUE(
          std::all_of(behind, made[v].end(), [](std::byte b) { return b == std::byte{0xa5}; }));
    }
  }

 private:
  const float* at(size_t operand, int64_t row, int64_t head) const {
    const Shape& shape = types_[operand].shape;
    return values_[operand].data() + (row * shape[2] + head) * shape[3];
  }
  double weight(const float* q, const ops::ThinnedPart& p, int64_t key, int64_t h) const {
    const float* k = at(1, p.k_row + key, h);
    double score = 0;
    for (int64_t d = 0; d < c_.D; ++d) score += double{q[d]} * k[d];
    return std::exp(score * double{attrs_.scale});
  }
  // The first keys, the last from the end, then all others: none before a more important one, and
  // equal ones by position.
  void expect_order(const ops::ThinnedPart& p, const std::vector<double>& paid,
                    const std::vector<int32_t>& order) const {
    std::vector<int32_t> all = order;
    std::ranges::sort(all);
    for (int32_t j = 0; j < p.rows; ++j) ASSERT_EQ(all[static_cast<size_t>(j)], j);
    const int64_t sinks = std::min(p.sinks, p.rows);
    const int64_t recent = std::min(c_.recent, p.rows - sinks);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int32_t key = order[static_cast<size_t>(i)];
      if (i < sinks) {
        ASSERT_EQ(key, i);
      } else if (i < sinks + recent) {
        ASSERT_EQ(key, p.rows - 1 - (i - sinks));
      } else if (i > sinks + recent) {
        const int32_t before = order[static_cast<size_t>(i - 1)];
        const double more = paid[static_cast<size_t>(before)],
                     less = paid[static_cast<size_t>(key)];
        ASSERT_GE(more, less * (1 - 1e-9)) << "place " << i;
        if (more == less) {
          ASSERT_LT(before, key) << "place " << i;
        }
      }
    }
  }

  const Case c_;
  const ops::ThinKeysAttrs attrs_;
  std::vector<ValueType> types_;
  std::vector<std::vector<std::byte>> in_;
  std::vector<std::vector<float>> values_;
};

std::vector<Case> cases() {
  return {
      {.q_rows = 32,
       .k_rows = 103,
       .parts = {{.queries = 32, .sees = 69, .k_row = 3, .rows = 100, .keep = 40, .sinks = 4}}},
      {.dtype = DType::bf16,
       .heads = 3,
       .group = 1,
       .q_rows = 40,
       .k_rows = 150,
       .parts = {{.queries = 5, .sees = 60, .rows = 64, .keep = 64},
                 {.q_row = 7, .queries = 33, .sees = 45, .k_row = 70, .rows = 77, .keep = 1}}},
      {.dtype = DType::f16,
       .q_rows = 1,
       .k_rows = 90,
       .parts = {{.queries = 1, .sees = 90, .rows = 90, .keep = 30}},
       .recent = 0},
      {.q_rows = 64,
       .k_rows = 200,
       .parts =
           {{.by = By::probes, .queries = 64, .sees = 200, .rows = 200, .keep = 90, .sinks = 4}}},
      {.heads = 1,
       .group = 7,
       .q_rows = 210,
       .k_rows = 220,
       .parts = {{.by = By::scores, .q_row = 9, .rows = 131, .keep = 66, .sinks = 2},
                 {.by = By::scores, .q_row = 140, .k_row = 150, .rows = 70, .keep = 0}}},
      {.q_rows = 3,
       .k_rows = 3,
       .parts = {{.queries = 1, .sees = 1, .rows = 1, .keep = 1, .sinks = 4},
                 {.q_row = 1, .queries = 2, .sees = 1, .k_row = 1, .rows = 2, .keep = 1}}},
  };
}

TEST(ThinKeys, OrdersByImportanceOnEveryTeam) {
  const uint32_t seed = std::random_device{}();
  for (const bool equal : {false, true}) {  // ties everywhere
    for (Case c : cases()) {
      c.equal = equal;
      SCOPED_TRACE(fmt::format("{} {} heads, groups of {}, {} recent{}, seed {}", name(c.dtype),
                               c.heads, c.group, c.recent, equal ? ", equal scores" : "", seed));
      Thinning thinning(c, seed);
      const auto once = thinning.run(1, Isa::baseline);
      thinning.expect(once);
      for (Isa isa : usable_isas()) {
        for (int threads : {1, 2, 3, 5}) {
          EXPECT_TRUE(thinning.run(threads, isa) == once) << name(isa) << ", " << threads;
        }
      }
    }
  }
}

// With equal scores positions alone decide.
TEST(ThinKeys, TiesGoByPosition) {
  const Case c{.q_rows = 32,
               .k_rows = 300,
               .parts = {{.queries = 32, .sees = 300, .rows = 300, .keep = 150, .sinks = 4}},
               .equal = true};
  Thinning thinning(c, 3);
  const auto made = thinning.run(3, detected_isa());
  for (size_t i = 20; i < 300; ++i) {
    for (size_t h = 0; h < 2; ++h) {
      int32_t key = -1;
      std::memcpy(&key, made[2].data() + 4 * (2 * i + h), 4);
      ASSERT_EQ(key, static_cast<int32_t>(i) - 16);
    }
  }
}

}  // namespace
}  // namespace braid::cpu
