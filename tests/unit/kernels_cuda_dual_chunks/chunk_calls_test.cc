// Calls for chunks of keys give what the call with dual chunks gives, both by the scalar reference.
#include "braid/kernels/cuda/dual_chunks/chunk_calls.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace braid::cuda {
namespace {

using ops::SegmentAttentionAttrs;
constexpr size_t kQ = SegmentAttentionAttrs::kFirstQ;
constexpr int64_t kB = 2, kD = 8, kRows = 90, kKeys = 150, kChunk = 40;

class Case {
 public:
  explicit Case(uint32_t seed) : random_(seed) {
    a.group = pick(1, 3);
    a.heads = pick(1, 4);
    a.kv_heads = (a.heads - 1) / a.group + 1;
    a.scale = 0.4f;
    if (pick(0, 4) > 0) a.window_right = 0;
    a.load_state = pick(0, 2) == 0;
    a.finalize = pick(0, 3) > 0;
    a.num_q = 2;
    a.dual = {.chunk = kChunk,
              .reach = 55,
              .original = pick(0, 1) * 60,
              .rope = {.head_dim = kD, .rotary_dim = kD, .theta = 100}};
    int64_t rows = 0;
    for (int64_t i = pick(1, 4); i > 0; --i) {
      ops::QSegment s{.q = static_cast<int>(pick(0, 1)),
                      .row = rows,
                      .head = pick(0, 2),
                      .rows = pick(0, 20),
                      .position = pick(0, 170),
                      .state_row = rows,
                      .out = static_cast<ops::QSegment::Out>(pick(0, 3)),
                      .out_row = rows,
                      .out_head = pick(0, 2)};
      rows += s.rows;
      a.q.push_back(s);
    }
    for (int64_t i = pick(0, 5); i > 0; --i) {
      const int64_t chunk = pick(0, 3), first = pick(0, kChunk - 1);
      a.kv.push_back({.kv = static_cast<int>(pick(0, 1)),
                      .row = pick(0, 90),
                      .rows = pick(0, kChunk - first),
                      .position = chunk * kChunk + first});
    }
    for (ops::QSegment& s : a.q) {
      s.kv_begin = static_cast<int>(pick(0, std::ssize(a.kv)));
      s.kv_end = static_cast<int>(pick(s.kv_begin, std::ssize(a.kv)));
    }
    const auto add = [&](const Shape& shape) {
      shapes_.push_back(shape);
      data.emplace_back(static_cast<size_t>(shape.elems()));
      for (float& x : data.back()) x = std::normal_distribution<float>()(random_);
    };
    add({kB, kRows, a.heads, kD});
    add({kB, kRows, a.heads});
    add({kB, kRows, a.heads});
    for (float& l : data[1]) l = std::abs(l) + 0.1f;
    for (int i = 0; i < 6; ++i) add({kB, kRows, a.heads + 2, kD});
    for (int i = 0; i < 4; ++i) add({kB, kKeys, a.kv_heads, kD});
  }

  void whole() { run(a, views()); }

  void in_calls() {
    const std::vector<double> frequencies = rope_frequencies(a.dual->rope, nullptr);
    for (const ChunkCall& chunk : chunk_calls(a)) {
      EXPECT_FALSE(chunk.attrs.dual);
      std::vector<TensorView> in = views();
      std::vector<float> met(static_cast<size_t>(kB * chunk.met_rows * a.heads * kD), NAN);
      float* to = met.data();
      for (int64_t b = 0; b < kB; ++b) {
        for (const MetRows& rows : chunk.met) {
          EXPECT_EQ(to,
                    &met[static_cast<size_t>((b * chunk.met_rows + rows.met_row) * a.heads * kD)]);
          for (int64_t r = 0; r < rows.rows; ++r, to += a.heads * kD) {
            const TensorView& q = in[kQ + static_cast<size_t>(rows.q)];
            const float* from = q.as<const float>() +
                                ((b * q.shape[1] + rows.row + r) * q.shape[2] + rows.head) * kD;
            const int64_t position = rows.position + r;
            for (int64_t i = 0; i < a.heads * kD; ++i) {
              to[i] = static_cast<float>(a.dual->growth(position) * from[i]);
            }
            turn_heads(a.dual->rope, frequencies, a.dual->moves(position, chunk.chunk * kChunk),
                       a.heads, kD, to);
          }
        }
      }
      if (!chunk.met.empty()) {
        in.insert(in.begin() + static_cast<ptrdiff_t>(kQ) + a.num_q,
                  view(met, {kB, chunk.met_rows, a.heads, kD}));
      }
      run(chunk.attrs, in);
    }
  }

  SegmentAttentionAttrs a;
  std::vector<std::vector<float>> data;

 private:
  int64_t pick(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  static TensorView view(std::vector<float>& x, const Shape& shape) {
    return make_view(reinterpret_cast<std::byte*>(x.data()), DType::f32, shape);
  }
  std::vector<TensorView> views() {
    std::vector<TensorView> out;
    for (size_t i = 0; i < data.size(); ++i) out.push_back(view(data[i], shapes_[i]));
    return out;
  }
  static void run(const SegmentAttentionAttrs& attrs, const std::vector<TensorView>& in) {
    std::vector<ValueType> types;
    for (const TensorView& x : in) types.push_back({x.dtype, x.shape, BatchAxis::sequence});
    const Op op{.def = &ops::kSegmentAttention, .attrs = Attrs::of(attrs)};
    op.def->infer(op.attrs, types);
    BatchPart part{.begin = {}, .count = {.sequence = kB}};
    op.def->reference({&op, in, {}, BatchAxis::sequence, &part});
  }

  std::mt19937 random_;
  std::vector<Shape> shapes_;
};

TEST(ChunkCalls, EqualTheWholeCall) {
  int turned = 0, plain = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Case want(seed), got(seed);
    for (const ChunkCall& chunk : chunk_calls(want.a)) {
      turned += chunk.met.empty() ? 0 : 1;
      plain += chunk.met.empty() ? 1 : 0;
    }
    want.whole();
    got.in_calls();
    for (size_t i = want.a.finalize ? 3 : 0; i < want.data.size(); ++i) {
      for (size_t j = 0; j < want.data[i].size(); ++j) {
        const float w = want.data[i][j], g = got.data[i][j];
        if (w == g) continue;  // minus infinity too
        ASSERT_NEAR(g, w, 1e-4 * (1 + std::abs(w))) << "operand " << i << ", " << j;
      }
    }
  }
  EXPECT_GT(turned, 100);
  EXPECT_GT(plain, 100);
}

}  // namespace
}  // namespace braid::cuda
