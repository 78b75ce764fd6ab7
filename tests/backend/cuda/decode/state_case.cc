#include "backend/cuda/decode/state_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "backend/cuda/decode/late_writer.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/decode/device/paged_states.h"
#include "braid/kernels/cuda/decode/device/states.h"
#include "braid/program/op.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {

StateCase::StateCase(const StateSpec& spec)
    : spec_(spec), T_(std::ssize(spec.keys)), heads_(spec.kv_heads * spec.group) {
  std::mt19937 rng(spec.seed);
  std::normal_distribution<float> normal;
  int64_t most = 1;
  for (const Range& keys : spec.keys) most = std::max(most, keys.end);
  K_ = spec.paged ? round_up(most + 3, spec.page_size) : most + 3;
  pages_ = ceil_div(spec.sequences * K_ + 8, spec.page_size);
  const auto row = [&](DType dtype) {
    std::vector<float> x(static_cast<size_t>(spec.head_dim));
    for (float& v : x) v = normal(rng);
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, spec.head_dim)));
    quantize_row(dtype, x.data(), bytes.data(), spec.head_dim);
    return bytes;
  };
  for (int64_t i = 0; i < (spec.one_query ? 1 : T_) * heads_; ++i) {
    const auto x = row(spec.q);
    q_.insert(q_.end(), x.begin(), x.end());
  }
  if (spec.one_query) {
    const std::vector<std::byte> one = q_;
    for (int64_t t = 1; t < T_; ++t) q_.insert(q_.end(), one.begin(), one.end());
  }
  const int64_t row_bytes = bytes_of(spec.cache, spec.kv_heads * spec.head_dim);
  k_.assign(static_cast<size_t>(pages_ * spec.page_size * row_bytes), std::byte{0xff});  // NaN
  v_ = k_;
  // A place is a page or a slot.
  const int64_t in_place = spec.paged ? spec.page_size : 1;
  std::vector<int32_t> places(static_cast<size_t>(pages_ * spec.page_size / in_place));
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i * in_place);
  std::ranges::shuffle(places, rng);
  for (int64_t i = 0; i < spec.sequences * K_; ++i) {
    slots_.push_back(places[i / in_place] + static_cast<int32_t>(i % in_place));
  }
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
      for (std::vector<std::byte>* cache : {&k_, &v_}) {
        auto out = cache->begin() + slots_[at] * row_bytes;
        for (int64_t h = 0; h < spec.kv_heads; ++h) {
          out = std::ranges::copy(row(spec.cache), out).out;
        }
      }
    }
  }
}

std::vector<float> StateCase::reference() const {
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

// A run's memory: the output is poison, the workspace zero.
struct StateCase::Device {
  Device(const StateCase& c, int64_t workspace_bytes)
      : q(c.q_),
        k(c.k_),
        v(c.v_),
        slots(c.slots_),
        rows(c.rows_),
        begin(c.begin_),
        end(c.end_),
        out(c.elems()),
        workspace(static_cast<size_t>(workspace_bytes)) {
    out.fill(0xff);
    workspace.fill(0);
  }

  const DeviceBuffer<std::byte> q, k, v;
  const DeviceBuffer<int32_t> slots, rows, begin, end;
  DeviceBuffer<float> out;
  DeviceBuffer<std::byte> workspace;
};

std::vector<float> StateCase::run(const DecodeConfig* config, bool late) const {
  const Device d(*this, config ? config->workspace_bytes : 16);
  StateParams p = {.q = make_view(d.q.data(), spec_.q, {1, T_, heads_, spec_.head_dim}),
                   .k_cache = make_view(d.k.data(), spec_.cache, cache_shape()),
                   .v_cache = make_view(d.v.data(), spec_.cache, cache_shape()),
                   .slots = make_view(reinterpret_cast<std::byte*>(d.slots.data()), DType::i32,
                                      {spec_.sequences, K_}),
                   .rows = d.rows.data(),
                   .begin = d.begin.data() + T_,
                   .end = d.end.data(),
                   .out = d.out.data(),
                   .workspace = d.workspace.data(),
                   .attrs = attrs()};
  std::optional<LateWriter> writer;
  if (late) {
    std::vector<int64_t> last;
    for (size_t t = 0; t < end_.size(); ++t) {
      if (spec_.keys[t].size() > 0) last.push_back(slots_[rows_[t] * K_ + end_[t] - 1]);
    }
    writer.emplace(d.q, d.k, d.v, last, bytes_of(spec_.cache, spec_.kv_heads * spec_.head_dim));
    writer->poison(nullptr);
    writer->write({nullptr, true});
    p.history_ready = true;
    attention_states(p, *config, {nullptr, true});
  }
  for (int again = 0; again < 2; ++again) {  // the workspace is as it was
    config ? attention_states(p, *config, {}) : plain_states(p, {});
  }
  return d.out.download();
}

std::vector<float> StateCase::run_paged(const DecodeConfig& config) const {
  const Device d(*this, config.workspace_bytes);
  std::vector<int32_t> pages;
  for (size_t i = 0; i < slots_.size(); i += static_cast<size_t>(spec_.page_size)) {
    pages.push_back(slots_[i] / static_cast<int32_t>(spec_.page_size));
  }
  const DeviceBuffer<int32_t> table(pages);
  for (int again = 0; again < 2; ++again) {
    paged_states(paged_desc(),
                 {.q = d.q.data(),
                  .k_cache = d.k.data(),
                  .v_cache = d.v.data(),
                  .page_table = table.data(),
                  .rows = d.rows.data(),
                  .begin = d.begin.data() + T_,
                  .end = d.end.data(),
                  .out = d.out.data(),
                  .workspace = d.workspace.data()},
                 config, {});
  }
  return d.out.download();
}

DecodeDesc StateCase::desc() const {
  return state_desc(attrs(), {spec_.q, {1, T_, heads_, spec_.head_dim}},
                    {spec_.cache, cache_shape()}, {DType::i32, {spec_.sequences, K_}});
}

DecodeDesc StateCase::paged_desc() const {
  DecodeDesc paged = desc();
  paged.page_size = static_cast<int>(spec_.page_size);
  paged.table_stride = static_cast<int>(K_ / spec_.page_size);
  return paged;
}

void StateCase::expect_equal(const std::vector<float>& got, const std::vector<float>& want,
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

ops::AttentionAttrs StateCase::attrs() const {
  return {.head_dim = spec_.head_dim,
          .group = spec_.group,
          .scale = 1 / std::sqrt(static_cast<float>(spec_.head_dim)),
          .softcap = spec_.softcap};
}

}  // namespace braid::cuda::test
