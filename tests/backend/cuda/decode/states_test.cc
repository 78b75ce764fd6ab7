// Attention over the keys that a GPU holds, against the scalar reference: by the decode kernel and
// by the plain one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "backend/cuda/decode/decode_case.h"
#include "backend/cuda/decode/late_writer.h"
#include "braid/kernels/cuda/decode/device/states.h"
#include "braid/program/op.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {
namespace {

struct StateSpec {
  int64_t kv_heads = 2;
  int64_t group = 4;
  int64_t head_dim = 128;
  DType cache = DType::bf16;
  DType q = DType::bf16;
  float softcap = 0;
  std::vector<Range> keys;  // [T] that each query sees of its sequence
  int64_t sequences = 1;
  uint32_t seed = 1;
};

// Operands on the host and on the device. Only what a query may read holds numbers.
class StateCase {
 public:
  explicit StateCase(const StateSpec& spec)
      : spec_(spec), T_(std::ssize(spec.keys)), heads_(spec.kv_heads * spec.group) {
    std::mt19937 rng(spec.seed);
    std::normal_distribution<float> normal;
    int64_t most = 1;
    for (const Range& keys : spec.keys) most = std::max(most, keys.end);
    K_ = most + 3;
    pages_ = ceil_div(spec.sequences * K_ + 8, int64_t{16});
    const auto row = [&](DType dtype) {
      std::vector<float> x(static_cast<size_t>(spec.head_dim));
      for (float& v : x) v = normal(rng);
      std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, spec.head_dim)));
      quantize_row(dtype, x.data(), bytes.data(), spec.head_dim);
      return bytes;
    };
    for (int64_t i = 0; i < T_ * heads_; ++i) {
      const auto x = row(spec.q);
      q_.insert(q_.end(), x.begin(), x.end());
    }
    const int64_t row_bytes = bytes_of(spec.cache, spec.kv_heads * spec.head_dim);
    k_.assign(static_cast<size_t>(pages_ * 16 * row_bytes), std::byte{0xff});  // NaN
    v_ = k_;
    std::vector<int32_t> order(static_cast<size_t>(pages_ * 16));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::shuffle(order, rng);
    slots_.assign(static_cast<size_t>(spec.sequences * K_), 0);
    std::vector<bool> known(slots_.size());
    begin_.assign(static_cast<size_t>(T_), 1 << 20);  // of another window
    for (int64_t t = 0; t < T_; ++t) {
      const Range& keys = spec.keys[static_cast<size_t>(t)];
      rows_.push_back(static_cast<int32_t>(t % spec.sequences));
      begin_.push_back(static_cast<int32_t>(keys.begin));
      end_.push_back(static_cast<int32_t>(keys.end));
      for (int64_t i = keys.begin; i < keys.end; ++i) {
        const auto at = static_cast<size_t>(rows_.back() * K_ + i);
        if (known[at]) continue;
        known[at] = true;
        slots_[at] = order.back();
        order.pop_back();
        for (std::vector<std::byte>* cache : {&k_, &v_}) {
          auto out = cache->begin() + slots_[at] * row_bytes;
          for (int64_t h = 0; h < spec.kv_heads; ++h) {
            out = std::ranges::copy(row(spec.cache), out).out;
          }
        }
      }
    }
  }

  std::vector<float> reference() const {
    std::vector<float> out(elems());
    const auto view = [](const auto& v, DType dtype, const Shape& shape) {
      return make_view(const_cast<std::byte*>(reinterpret_cast<const std::byte*>(v.data())), dtype,
                       shape);
    };
    const std::vector<TensorView> in = {view(q_, spec_.q, {1, T_, heads_, spec_.head_dim}),
                                        view(k_, spec_.cache, cache_shape()),
                                        view(v_, spec_.cache, cache_shape()),
                                        view(slots_, DType::i32, {spec_.sequences, K_}),
                                        view(rows_, DType::i32, {T_}),
                                        view(begin_, DType::i32, {2, T_}),
                                        view(end_, DType::i32, {T_})};
    const std::vector<TensorView> result = {
        view(out, DType::f32, {1, T_, heads_, spec_.head_dim + 2})};
    Op op;
    op.def = &ops::kAttentionState;
    op.attrs = Attrs::of(ops::AttentionStateAttrs{.attention = attrs(), .window_row = 1});
    BatchPart part{};
    const OpCall call{&op, in, result, BatchAxis::sequence, &part};
    ops::kAttentionState.reference(call);
    return out;
  }

  // config: of the decode kernel; null: the plain kernel. `late`: q, and the last key that each
  // query sees, come from the kernel before, which takes its time.
  std::vector<float> run(const DecodeConfig* config, bool late = false) const {
    const DeviceBuffer<std::byte> q(q_), k(k_), v(v_);
    const DeviceBuffer<int32_t> slots(slots_), rows(rows_), begin(begin_), end(end_);
    DeviceBuffer<float> out(elems());
    out.fill(0xff);
    const int64_t bytes = config ? config->workspace_bytes : 16;
    DeviceBuffer<std::byte> workspace(static_cast<size_t>(bytes));
    workspace.fill(0);
    StateParams p = {.q = make_view(q.data(), spec_.q, {1, T_, heads_, spec_.head_dim}),
                     .k_cache = make_view(k.data(), spec_.cache, cache_shape()),
                     .v_cache = make_view(v.data(), spec_.cache, cache_shape()),
                     .slots = make_view(reinterpret_cast<std::byte*>(slots.data()), DType::i32,
                                        {spec_.sequences, K_}),
                     .rows = rows.data(),
                     .begin = begin.data() + T_,
                     .end = end.data(),
                     .out = out.data(),
                     .workspace = workspace.data(),
                     .attrs = attrs()};
    std::optional<LateWriter> writer;
    if (late) {
      std::vector<int64_t> last;
      for (size_t t = 0; t < end_.size(); ++t) {
        if (spec_.keys[t].size() > 0) last.push_back(slots_[rows_[t] * K_ + end_[t] - 1]);
      }
      writer.emplace(q, k, v, last, bytes_of(spec_.cache, spec_.kv_heads * spec_.head_dim));
      writer->poison(nullptr);
      writer->write({nullptr, true});
      p.history_ready = true;
      attention_states(p, *config, {nullptr, true});
    }
    for (int again = 0; again < 2; ++again) {  // the workspace is as it was
      config ? attention_states(p, *config, {}) : plain_states(p, {});
    }
    return out.download();
  }

  DecodeDesc desc() const {
    return state_desc(attrs(), {spec_.q, {1, T_, heads_, spec_.head_dim}},
                      {spec_.cache, cache_shape()}, {DType::i32, {spec_.sequences, K_}});
  }

  // As attention's weights are rounded to the cache's type.
  void expect_equal(const std::vector<float>& got, const std::vector<float>& want,
                    double tolerance) const {
    const int64_t D = spec_.head_dim;
    for (int64_t row = 0; row < T_ * heads_; ++row) {
      const float* g = got.data() + row * (D + 2);
      const float* w = want.data() + row * (D + 2);
      if (w[D] == 0) {
        for (int64_t d = 0; d <= D; ++d) ASSERT_EQ(g[d], 0) << "row " << row;
        ASSERT_EQ(g[D + 1], w[D + 1]) << "row " << row;
        continue;
      }
      ASSERT_NEAR(g[D + 1], w[D + 1], tolerance * std::max(1.f, std::abs(w[D + 1])));
      ASSERT_NEAR(g[D], w[D], 4 * tolerance * w[D]) << "row " << row;
      for (int64_t d = 0; d < D; ++d) {
        ASSERT_NEAR(g[d] / g[D], w[d] / w[D], tolerance) << "row " << row << ", " << d;
      }
    }
  }

 private:
  ops::AttentionAttrs attrs() const {
    return {.head_dim = spec_.head_dim,
            .group = spec_.group,
            .scale = 1 / std::sqrt(static_cast<float>(spec_.head_dim)),
            .softcap = spec_.softcap};
  }
  Shape cache_shape() const { return {pages_, 16, spec_.kv_heads, spec_.head_dim}; }
  size_t elems() const { return static_cast<size_t>(T_ * heads_ * (spec_.head_dim + 2)); }

  const StateSpec spec_;
  const int64_t T_, heads_;
  int64_t K_ = 0, pages_ = 0;
  std::vector<std::byte> q_, k_, v_;
  std::vector<int32_t> slots_, rows_, begin_, end_;
};

TEST(States, EqualTheReference) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  const std::vector<StateSpec> specs = {
      {.keys = {{0, 1}}},
      {.keys = {{0, 0}}},
      {.keys = {{0, 0}, {0, 64}, {3, 65}, {0, 0}, {65, 65}}},
      {.head_dim = 64, .cache = DType::f16, .keys = {{5, 700}}},
      {.kv_heads = 8, .keys = {{0, 20000}}},
      {.kv_heads = 1, .group = 7, .head_dim = 96, .q = DType::f32, .keys = {{0, 33}, {32, 33}}},
      {.group = 20, .head_dim = 256, .softcap = 30, .keys = {{0, 129}, {16, 129}}},
      {.keys = {{0, 9}, {0, 5000}, {4, 10}, {0, 77}}, .sequences = 2},
      {.head_dim = 80, .keys = {{0, 70}, {69, 70}}},
      {.cache = DType::f32, .q = DType::f32, .keys = {{0, 41}}},
  };
  for (StateSpec spec : specs) {
    spec.seed = 7 + static_cast<uint32_t>(spec.keys.size());
    const StateCase c(spec);
    SCOPED_TRACE(to_string(c.desc()));
    const auto want = c.reference();
    c.expect_equal(c.run(nullptr), want, 1e-4);
    std::vector<DecodeConfig> configs;
    try {
      configs = candidates(c.desc(), decode_device());
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kUnsupported);
    }
    EXPECT_EQ(configs.empty(), spec.head_dim == 80 || spec.cache == DType::f32);
    if (!configs.empty()) prepare_attention_states(c.desc());
    for (const DecodeConfig& config : configs) {
      SCOPED_TRACE(to_string(config));
      const auto got = c.run(&config);
      c.expect_equal(got, want, 1e-2);
      EXPECT_EQ(std::memcmp(got.data(), c.run(&config).data(), got.size() * 4), 0);
    }
  }
}

// Queries of a sequence see each other's new keys; keys before are there from the start.
TEST(States, WaitForTheKernelBefore) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  const std::vector<StateSpec> specs = {
      {.kv_heads = 8, .keys = {{0, 20000}}},
      {.keys = {{0, 65}}},
      {.keys = {{0, 1}, {0, 2}, {0, 3}}},
      {.keys = {{0, 1024}, {0, 1025}, {7, 1026}, {0, 1027}, {1000, 1028}}},
      {.head_dim = 64, .keys = {{0, 700}, {0, 0}, {0, 701}, {64, 130}}, .sequences = 2},
  };
  for (StateSpec spec : specs) {
    const StateCase c(spec);
    SCOPED_TRACE(to_string(c.desc()));
    prepare_attention_states(c.desc());
    for (const DecodeConfig& config : candidates(c.desc(), decode_device())) {
      SCOPED_TRACE(to_string(config));
      const auto want = c.run(&config);
      for (int round = 0; round < 5; ++round) {
        EXPECT_EQ(std::memcmp(want.data(), c.run(&config, true).data(), want.size() * 4), 0);
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
