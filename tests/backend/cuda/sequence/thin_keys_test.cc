// The order and copy of a part's most important keys on a GPU: whole rows, each once, in the order
// that importances in f64 give but for near-equal ones, and the same bits every time.
#include "braid/kernels/cuda/thinning/device/thin_keys.h"

#include <cuda_runtime.h>

#include <map>

#include "backend/cuda/pointwise/tensor.h"

namespace braid::cuda {
namespace {

using test::Tensor;

struct Case {
  DType dtype = DType::bf16;
  int64_t heads = 2, group = 3, D = 64;
  std::vector<ops::ThinnedPart> parts;
  int64_t scoring = 32, recent = 16;
  bool probed = false;  // the parts by other queries, which see all keys
  bool scored = false;  // by given scores, with an order of all keys
  float spread = 1;     // of q: 0 gives equal scores
};

std::string to_string(const Case& c) {
  std::string text = fmt::format("{} {} heads of {} in groups of {}, the last {} score, {} recent",
                                 name(c.dtype), c.heads, c.D, c.group, c.scoring, c.recent);
  for (const ops::ThinnedPart& p : c.parts) text += fmt::format("; {} of {}", p.keep, p.rows);
  return text;
}

class Thinning {
 public:
  Thinning(const Case& c, uint32_t seed)
      : attrs_(attrs_of(c)),
        q_(c.dtype, {1, rows(c, true), c.heads * c.group, c.D}),
        k_(c.dtype, {1, rows(c, false), c.heads, c.D}),
        v_(c.dtype, {1, rows(c, false), c.heads, c.D}),
        probes_(c.dtype, {1, c.scoring, c.heads * c.group, c.D}),
        scores_(DType::f32, {1, rows(c, true), c.heads, 1}),
        kept_k_(c.dtype, {1, attrs_.rows, c.heads, c.D}),
        kept_v_(c.dtype, {1, attrs_.rows, c.heads, c.D}),
        order_(DType::i32, {1, std::max<int64_t>(attrs_.order_rows, 1), c.heads, 1}) {
    std::mt19937 rng(seed);
    q_.normal(rng, c.spread).upload();
    k_.normal(rng, 1).upload();
    v_.normal(rng, 1).upload();
    probes_.normal(rng, c.spread).upload();
    scores_.normal(rng, 1);
    for (float& x : std::span(scores_.host().as<float>(), scores_.host().shape.elems())) {
      x = std::abs(x);  // an importance is no negative number
    }
    scores_.upload();
    order_.poison();
    kept_k_.poison();
    kept_v_.poison();
    std::byte* workspace = nullptr;
    check_cuda(cudaMalloc(&workspace, static_cast<size_t>(thin_keys_workspace(attrs_, c.heads))),
               "test");
    prepare_thin_keys(attrs_, c.dtype, c.heads, c.D, workspace);
    thin_keys({.q = q_.device(),
               .k = k_.device(),
               .v = v_.device(),
               .probes = probes_.device(),
               .scores = c.scored ? scores_.device() : TensorView(),
               .kept_k = kept_k_.device(),
               .kept_v = kept_v_.device(),
               .order = c.scored ? order_.device() : TensorView(),
               .attrs = &attrs_,
               .workspace = workspace},
              {});
    check_cuda(cudaDeviceSynchronize(), "test");
    cudaFree(workspace);
    kept_k_.download();
    kept_v_.download();
    order_.download();
  }

  // All rows of a part in order, from the third result.
  std::vector<int64_t> whole_order(size_t part, int64_t h) {
    int64_t first = 0;
    for (size_t i = 0; i < part; ++i) first += attrs_.parts[i].rows;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < attrs_.parts[part].rows; ++i) {
      const TensorView all = order_.host();
      order.push_back(all.as<const int32_t>()[(first + i) * all.shape[2] + h]);
    }
    return order;
  }

  // Rows of a part in the order of the result, for a KV head.
  std::vector<int64_t> order(size_t part, int64_t h) {
    const ops::ThinnedPart& p = attrs_.parts[part];
    std::map<std::string, int64_t> known;
    for (int64_t j = 0; j < p.rows; ++j) known[bytes(k_, p.k_row + j, h)] = j;
    int64_t to = 0;
    for (size_t i = 0; i < part; ++i) to += attrs_.parts[i].keep;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < p.keep; ++i) {
      const auto found = known.find(bytes(kept_k_, to + i, h));
      if (found == known.end()) {
        ADD_FAILURE() << "row " << i << " is no row of k, or there twice";
        return order;
      }
      order.push_back(found->second);
      known.erase(found);
      EXPECT_EQ(bytes(kept_v_, to + i, h), bytes(v_, p.k_row + order.back(), h));
    }
    return order;
  }

  std::vector<double> importances(size_t part, int64_t h) {
    const ops::ThinnedPart& p = attrs_.parts[part];
    std::vector<double> paid(static_cast<size_t>(p.rows));
    if (p.by == ops::ThinnedPart::By::scores) {
      for (int64_t j = 0; j < p.rows; ++j) paid[j] = row(scores_, p.q_row + j, h)[0];
      return paid;
    }
    for (int64_t t = 0; t < p.queries; ++t) {
      const int64_t seen = std::min(p.rows, p.sees + t);
      for (int64_t g = 0; g < attrs_.group; ++g) {
        const auto q = row(p.by == ops::ThinnedPart::By::probes ? probes_ : q_, p.q_row + t,
                           h * attrs_.group + g);
        std::vector<double> weights;
        double sum = 0;
        for (int64_t j = 0; j < seen; ++j) {
          const auto k = row(k_, p.k_row + j, h);
          double score = 0;
          for (size_t d = 0; d < q.size(); ++d) score += double{q[d]} * k[d];
          weights.push_back(std::exp(score * attrs_.scale));
          sum += weights.back();
        }
        for (size_t j = 0; j < weights.size(); ++j) paid[j] += weights[j] / sum;
      }
    }
    for (int64_t j = 0; j < p.rows; ++j) {
      int64_t queries = 0;
      for (int64_t t = 0; t < p.queries; ++t) queries += j < p.sees + t;
      paid[static_cast<size_t>(j)] /= static_cast<double>(queries);
    }
    return paid;
  }

  const std::vector<std::byte>& kept() { return kept_k_.bytes(); }
  // Rows behind the kept ones are as they were.
  bool rest_is_poison() {
    int64_t rows = 0;
    for (const ops::ThinnedPart& p : attrs_.parts) rows += p.keep;
    const std::vector<std::byte>& all = kept_k_.bytes();
    const auto from =
        all.begin() + rows * bytes_of(k_.host().dtype, k_.host().shape[2] * k_.host().shape[3]);
    return std::all_of(from, all.end(), [](std::byte b) { return b == test::kPoison; });
  }

 private:
  static ops::ThinKeysAttrs attrs_of(const Case& c) {
    ops::ThinKeysAttrs attrs{.group = c.group,
                             .scale = 1 / std::sqrt(static_cast<float>(c.D)),
                             .recent = c.recent,
                             .rows = 3,
                             .parts = c.parts};
    for (ops::ThinnedPart& p : attrs.parts) {
      attrs.rows += p.keep;
      p.queries = c.probed ? c.scoring : std::min(c.scoring, p.rows);
      p.sees = c.probed ? p.rows : p.rows - p.queries + 1;
      p.q_row = c.probed ? 0 : p.q_row + p.rows - p.queries;
      if (c.probed) p.by = ops::ThinnedPart::By::probes;
      if (!c.scored) continue;
      p.by = ops::ThinnedPart::By::scores;
      p.q_row -= p.rows - p.queries;
      attrs.order_rows += p.rows;
    }
    return attrs;
  }
  static int64_t rows(const Case& c, bool queries) {
    int64_t rows = 1;
    for (const auto& p : c.parts) rows = std::max(rows, (queries ? p.q_row : p.k_row) + p.rows);
    return rows;
  }
  static int64_t place(Tensor& x, int64_t row, int64_t head) {
    return row * x.host().shape[2] + head;
  }
  static std::string bytes(Tensor& x, int64_t row, int64_t head) {
    const auto* data = reinterpret_cast<const char*>(x.host().row(place(x, row, head)));
    return {data, static_cast<size_t>(bytes_of(x.host().dtype, x.host().shape[3]))};
  }
  static std::vector<float> row(Tensor& x, int64_t row, int64_t head) {
    std::vector<float> out(static_cast<size_t>(x.host().shape[3]));
    dequantize_row(x.host().dtype, x.host().row(place(x, row, head)), out.data(), std::ssize(out));
    return out;
  }

  const ops::ThinKeysAttrs attrs_;
  Tensor q_, k_, v_, probes_, scores_, kept_k_, kept_v_, order_;
};

std::vector<Case> cases() {
  return {
      {.parts = {{.rows = 100, .keep = 40, .sinks = 4}}},
      {.heads = 4,
       .group = 4,
       .D = 128,
       .parts = {{.rows = 700, .keep = 311, .sinks = 4},
                 {.q_row = 700, .k_row = 705, .rows = 333, .keep = 333}}},
      {.dtype = DType::f16,
       .heads = 1,
       .group = 1,
       .D = 96,
       .parts = {{.q_row = 3, .k_row = 9, .rows = 65, .keep = 1}}},
      {.dtype = DType::f32,
       .heads = 3,
       .group = 2,
       .D = 20,
       .parts = {{.rows = 130, .keep = 64, .sinks = 2},
                 {.q_row = 130, .k_row = 130, .rows = 7, .keep = 5}}},
      {.group = 5, .D = 40, .parts = {{.rows = 257, .keep = 129, .sinks = 4}}},
      {.D = 24, .parts = {{.rows = 90, .keep = 30}}, .scoring = 1, .recent = 0},
      {.parts = {{.rows = 40, .keep = 20, .sinks = 3}}, .scoring = 500, .recent = 100},
      {.heads = 2,
       .group = 4,
       .D = 128,
       .parts = {{.rows = 200, .keep = 90, .sinks = 4}, {.k_row = 200, .rows = 77, .keep = 30}},
       .scoring = 64,
       .probed = true},
      {.heads = 3,
       .group = 2,
       .parts = {{.rows = 200, .keep = 90, .sinks = 4},
                 {.q_row = 200, .k_row = 207, .rows = 77, .keep = 0},
                 {.q_row = 277, .k_row = 300, .rows = 131, .keep = 131}},
       .scored = true},
      {.parts = {{.rows = 1, .keep = 1, .sinks = 4}, {.q_row = 1, .k_row = 1, .rows = 2}}},
  };
}

TEST(ThinKeysOnGpu, OrdersByImportance) {
  REQUIRE_DEVICE();
  const uint32_t seed = std::random_device{}();
  for (const Case& c : cases()) {
    SCOPED_TRACE(to_string(c) + fmt::format(", seed {}", seed));
    Thinning got(c, seed);
    EXPECT_TRUE(got.rest_is_poison());
    for (size_t part = 0; part < c.parts.size(); ++part) {
      const ops::ThinnedPart& p = c.parts[part];
      const int64_t sinks = std::min(p.sinks, p.rows);
      const int64_t recent = std::min(c.recent, p.rows - sinks);
      for (int64_t h = 0; h < c.heads; ++h) {
        const std::vector<int64_t> order = got.order(part, h);
        ASSERT_EQ(std::ssize(order), p.keep);
        if (c.scored) {
          std::vector<int64_t> all = got.whole_order(part, h);
          ASSERT_TRUE(std::equal(order.begin(), order.end(), all.begin()));
          std::ranges::sort(all);
          for (int64_t j = 0; j < p.rows; ++j) ASSERT_EQ(all[static_cast<size_t>(j)], j);
        }
        const std::vector<double> paid = got.importances(part, h);
        std::vector<bool> kept(static_cast<size_t>(p.rows));
        double least = INFINITY;
        for (int64_t i = 0; i < p.keep; ++i) {
          const auto at = static_cast<size_t>(order[static_cast<size_t>(i)]);
          kept[at] = true;
          if (i < sinks) {
            ASSERT_EQ(order[static_cast<size_t>(i)], i);
          } else if (i < sinks + recent) {
            ASSERT_EQ(order[static_cast<size_t>(i)], p.rows - 1 - (i - sinks));
          } else {
            ASSERT_LE(paid[at], least * (1 + 1e-4)) << "row " << i << " of head " << h;
            least = std::min(least, paid[at]);
          }
        }
        for (int64_t j = sinks; p.keep > sinks + recent && j < p.rows - recent; ++j) {
          if (kept[static_cast<size_t>(j)]) continue;
          ASSERT_LE(paid[static_cast<size_t>(j)], least * (1 + 1e-4)) << "key " << j << " is left";
        }
      }
    }
    EXPECT_TRUE(Thinning(c, seed).kept() == got.kept()) << "bits differ";
  }
}

TEST(ThinKeysOnGpu, TiesGoByPosition) {
  REQUIRE_DEVICE();
  for (DType dtype : {DType::bf16, DType::f32}) {
    Case c{.dtype = dtype, .parts = {{.rows = 300, .keep = 150, .sinks = 4}}, .spread = 0};
    Thinning got(c, 3);
    for (int64_t h = 0; h < c.heads; ++h) {
      const std::vector<int64_t> order = got.order(0, h);
      ASSERT_EQ(order.size(), 150u);
      for (int64_t i = 20; i < 150; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i - 16);
    }
  }
}

}  // namespace
}  // namespace braid::cuda
