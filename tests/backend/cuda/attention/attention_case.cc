#include "backend/cuda/attention/attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>

#include "backend/cuda/attention/case_builder.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/base/error.h"

namespace braid::cuda::test {
namespace {

double unit_roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

}  // namespace

Case::Case(const CaseSpec& spec) : spec_(spec) {
  CaseBuilder builder{*this, {}, {}};
  builder.build();
  check_cuda(cudaMalloc(&device_, arena_.size()), "test arena");
  check_cuda(cudaMalloc(&workspace_, kAttentionWorkspaceBytes), "test workspace");
  check_cuda(cudaMemset(workspace_, 0, kAttentionWorkspaceBytes), "test workspace");
  device_q_ = q_;
  device_kv_ = kv_;
  CaseBuilder::bind(device_q_, device_kv_, device_);
  CaseBuilder::bind(q_, kv_, arena_.data());
}

Case::~Case() {
  cudaFree(device_);
  cudaFree(workspace_);
}

void Case::launch(const AttentionDesc& desc, const AttentionParams& params,
                  const AttentionConfig& config, const AttentionArrivals* arrivals) {
  attention(desc, params, config, workspace_, nullptr, 0, arrivals);
}

void Case::fetch() {
  check_cuda(cudaDeviceSynchronize(), "attention");
  result_.resize(arena_.size());
  check_cuda(cudaMemcpy(result_.data(), device_, arena_.size(), cudaMemcpyDeviceToHost), "fetch");
}

void Case::run(const AttentionConfig& config) {
  chain_ = 1;
  check_cuda(cudaMemcpy(device_, arena_.data(), arena_.size(), cudaMemcpyHostToDevice), "upload");
  launch(spec_.desc, device_params(), config);
  fetch();
}

void Case::run_chain(const AttentionConfig& config, int calls) {
  chain_ = calls;
  check_cuda(cudaMemcpy(device_, arena_.data(), arena_.size(), cudaMemcpyHostToDevice), "upload");
  const int n = static_cast<int>(kv_.size());
  for (int i = 0; i < calls; ++i) {
    AttentionDesc desc = spec_.desc;
    desc.load_state = i > 0;
    desc.finalize = i == calls - 1;
    std::vector<QTensor> q = device_q_;
    for (QTensor& s : q) {
      s.kv_begin = i * n / calls;
      s.kv_end = (i + 1) * n / calls;
    }
    launch(desc, {q, device_kv_}, config);
  }
  fetch();
}

// What is of a stage: its number, where it lies in the arena, its bytes.
template <class F>
void Case::for_each_arriving(F f) const {
  const auto tensor = [&](int stage, const void* data, const Strides& stride) {
    f(stage, static_cast<size_t>(static_cast<const uint8_t*>(data) - arena_.data()),
      static_cast<size_t>(spec_.desc.batch * stride.batch) * 2);
  };
  for (const QTensor& q : q_) tensor(q.stage, q.q, q.q_stride);
  for (const KvTensor& kv : kv_) {
    tensor(kv.stage, kv.k, kv.k_stride);
    tensor(kv.stage, kv.v, kv.v_stride);
  }
}

std::pair<uint32_t, uint32_t> Case::run_arriving(const AttentionConfig& config, uint64_t seed,
                                                 bool withheld) {
  chain_ = 1;
  std::mt19937_64 rng(seed);
  const AttentionDesc& d = spec_.desc;
  std::vector<uint8_t> early = arena_;
  for_each_arriving([&](int stage, size_t at, size_t bytes) {
    if (stage > 0) std::fill_n(&early[at], bytes, kPoison);
  });
  check_cuda(cudaMemcpy(device_, early.data(), early.size(), cudaMemcpyHostToDevice), "upload");

  const size_t most = attention_sums_bytes(d, device_params(), config, attention_device());
  const size_t least = attention_sums_bytes(d, config) * attention_device().num_sms * 2;
  AttentionArrivals arrivals;
  arrivals.sums_bytes = least + (most > least ? rng() % (most - least) : 0);
  check_cuda(cudaMalloc(&arrivals.sums, arrivals.sums_bytes), "sums");
  check_cuda(cudaMalloc(&arrivals.arrived, 12), "arrived");
  check_cuda(cudaMemset(arrivals.arrived, 0, 12), "arrived");
  // Two words are told, which lie behind their list.
  struct Early {
    EarlyWords list;
    uint32_t told[2] = {};
  } asked;
  Early* device_early = nullptr;
  check_cuda(cudaMalloc(&device_early, sizeof(Early)), "early");
  asked.list.num_words = 2;
  for (int i : {0, 1}) asked.list.words[i] = &device_early->told[i];
  check_cuda(cudaMemcpy(device_early, &asked, sizeof(Early), cudaMemcpyHostToDevice), "early");
  arrivals.early = &device_early->list;
  cudaStream_t side;
  check_cuda(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "side stream");
  launch(d, device_params(), config, &arrivals);
  const int stages = kv_.back().stage + (withheld ? 0 : 1);
  for (int s = 1; s < stages; ++s) {
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 150));
    for_each_arriving([&](int stage, size_t at, size_t bytes) {
      if (stage != s) return;
      check_cuda(cudaMemcpyAsync(device_ + at, &arena_[at], bytes, cudaMemcpyHostToDevice, side),
                 "keys");
    });
    if (rng() % 2 == 0) {
      const StreamWord word{StreamWord::Does::write, arrivals.arrived, static_cast<uint32_t>(s)};
      put_words(side, {&word, 1});
    } else {
      check_cuda(cudaMemcpyAsync(arrivals.arrived, &s, 4, cudaMemcpyHostToDevice, side), "arrived");
    }
    check_cuda(cudaStreamSynchronize(side), "keys");
  }
  // Early rows, as they are when the call says that all are there.
  std::vector<uint8_t> seen(arena_.size());
  const auto all_told = [&] { return asked.told[0] == 1 && asked.told[1] == 1; };
  const bool asks =
      !withheld && std::ranges::any_of(q_, [](const QTensor& q) { return q.early != 0; });
  for (int tries = 0; asks && !all_told() && tries < 100'000; ++tries) {
    check_cuda(cudaMemcpyAsync(&asked, device_early, sizeof(Early), cudaMemcpyDeviceToHost, side),
               "early");
    check_cuda(cudaStreamSynchronize(side), "early");
  }
  check_cuda(cudaMemcpyAsync(seen.data(), device_, seen.size(), cudaMemcpyDeviceToHost, side),
             "early rows");
  check_cuda(cudaStreamSynchronize(side), "early rows");
  fetch();
  check_cuda(cudaMemcpy(&asked, device_early, sizeof(Early), cudaMemcpyDeviceToHost), "early");
  const bool told = all_told() && asked.list.count == 0;
  early_missing_ = !asks ? 0 : !told ? -1 : early_rows_that_differ(seen);
  check_cuda(cudaFree(device_early), "early");
  check_cuda(cudaStreamDestroy(side), "side stream");
  uint32_t left[2];
  check_cuda(cudaMemcpy(left, arrivals.arrived, 8, cudaMemcpyDeviceToHost), "arrived");
  check_cuda(cudaFree(arrivals.sums), "sums");
  check_cuda(cudaFree(arrivals.arrived), "arrived");
  return {left[0], left[1]};
}

template <class F>
void Case::for_each_row(F f) const {
  for (size_t i = 0; i < q_.size(); ++i) {
    for (int b = 0; b < spec_.desc.batch; ++b) {
      const int length = q_[i].starts ? q_[i].starts[b + 1] - q_[i].starts[b] : q_[i].length;
      for (int t = 0; t < length; ++t) {
        for (int h = 0; h < spec_.desc.num_q_heads; ++h) f(static_cast<int>(i), b, t, h);
      }
    }
  }
}

int Case::early_rows_that_differ(const std::vector<uint8_t>& seen) const {
  int differ = 0;
  for_each_row([&](int i, int b, int t, int h) {
    const QTensor& q = q_[static_cast<size_t>(i)];
    if (q.early == 0) return;
    const Strides& s = q.o_stride;
    const int64_t at = (static_cast<const uint8_t*>(q.o) - arena_.data()) +
                       2 * (b * s.batch + t * s.token + h * s.head);
    differ += std::memcmp(&seen[static_cast<size_t>(at)], &result_[static_cast<size_t>(at)],
                          size_t{2} * static_cast<size_t>(spec_.desc.head_dim_v)) != 0;
  });
  return differ;
}

std::string Case::check_row(int i, int b, int t, int h) const {
  const AttentionDesc& d = spec_.desc;
  const QTensor& q = q_[i];
  const ReferenceRow want = attention_reference(d, {q_, kv_}, i, b, t, h);
  const int64_t outer = q.starts ? 0 : b;
  const int64_t row = q.starts ? q.starts[b] + t : t;
  const int64_t stat =
      outer * q.row_stride.batch + row * q.row_stride.token + h * q.row_stride.head;
  const auto result = [&](const void* p) {
    return result_.data() + (static_cast<const uint8_t*>(p) - arena_.data());
  };
  const std::string where = fmt::format("segment {} b {} token {} head {}", i, b, t, h);
  // Logits carry f32 rounding of D products; P is rounded to the dtype; exp2 adds 1e-4.
  const double logits = 4 * 0x1p-24 * (d.head_dim_qk / 8 + 4) * (want.s_abs + 1);
  const double u = unit_roundoff(d.dtype);
  // Where row sums come from the tensor cores they carry the rounding of P, too.
  const double sums = d.head_dim_v == 64 ? u : 0;
  double relative = u + sums + 2e-4 + logits;
  if (chain_ > 1) relative += (chain_ - 1) * 2 * unit_roundoff(d.state_dtype);
  const double l_tolerance = sums + 2e-4 + logits;
  if (d.finalize || chain_ > 1) {
    const double got = load(DType::f32, result(q.lse), stat);
    const double lse = want.l > 0 ? want.m + std::log(want.l) : -INFINITY;
    if (!(got == lse || std::abs(got - lse) <= l_tolerance + 0x1p-22 * std::abs(lse))) {
      return fmt::format("{}: lse {} and not {}", where, got, lse);
    }
  } else {
    const double l = load(DType::f32, result(q.state_l), stat);
    const double m = load(DType::f32, result(q.state_m), stat);
    const double got = l > 0 ? m + std::log(l) : -INFINITY;
    const double lse = want.l > 0 ? want.m + std::log(want.l) : -INFINITY;
    if (!(got == lse || std::abs(got - lse) <= l_tolerance + 0x1p-22 * std::abs(lse))) {
      return fmt::format("{}: m + ln l = {} and not {}", where, got, lse);
    }
    if (spec_.empty_state && m == -INFINITY) return "";  // the rest of it means nothing
  }
  for (int x = 0; x < d.head_dim_v; ++x) {
    double got;
    double final_rounding;
    if (d.finalize || chain_ > 1) {
      got = load(d.dtype, result(q.o),
                 outer * q.o_stride.batch + row * q.o_stride.token + h * q.o_stride.head + x);
      final_rounding = u;
    } else {
      const double l = load(DType::f32, result(q.state_l), stat);
      got = load(
          d.state_dtype, result(q.state_o),
          outer * q.state_stride.batch + row * q.state_stride.token + h * q.state_stride.head + x);
      if (l > 0) got /= l;
      final_rounding = unit_roundoff(d.state_dtype);
    }
    const double allowed = relative * want.o_abs[x] + final_rounding * std::abs(want.o[x]) +
                           (d.dtype == DType::f16 ? 0x1p-24 : 1e-30);
    if (!(std::abs(got - want.o[x]) <= allowed)) {
      return fmt::format("{} column {}: {} and not {} (allowed error {})", where, x, got, want.o[x],
                         allowed);
    }
  }
  return "";
}

double Case::distance(const std::vector<uint8_t>& other) const {
  const AttentionDesc& d = spec_.desc;
  double worst = 0;
  double largest = 1e-30;
  for_each_row([&](int i, int b, int t, int h) {
    const QTensor& q = q_[i];
    const int64_t outer = q.starts ? 0 : b;
    const int64_t row = q.starts ? q.starts[b] + t : t;
    const size_t base = static_cast<const uint8_t*>(q.o) - arena_.data();
    const int64_t at = outer * q.o_stride.batch + row * q.o_stride.token + h * q.o_stride.head;
    for (int x = 0; x < d.head_dim_v; ++x) {
      const double a = load(d.dtype, &result_[base], at + x);
      const double c = load(d.dtype, &other[base], at + x);
      if (!(std::abs(a - c) <= worst)) worst = std::abs(a - c);  // NaN wins
      largest = std::max(largest, std::abs(a));
    }
  });
  return worst / (largest * unit_roundoff(d.dtype));
}

std::string Case::check(int max_rows) const {
  const AttentionDesc& d = spec_.desc;
  std::vector<uint8_t> mine(arena_.size(), 0);  // bytes that the call may write
  int64_t rows = 0;
  const auto mark = [&](const void* p, int64_t elem, int64_t count, int bytes) {
    const size_t at = static_cast<const uint8_t*>(p) - arena_.data() + elem * bytes;
    std::memset(&mine[at], 1, count * bytes);
  };
  for_each_row([&](int i, int b, int t, int h) {
    ++rows;
    const QTensor& q = q_[i];
    const int64_t outer = q.starts ? 0 : b;
    const int64_t row = q.starts ? q.starts[b] + t : t;
    const auto at = [&](const Strides& s) { return outer * s.batch + row * s.token + h * s.head; };
    if (d.finalize || chain_ > 1) {
      mark(q.o, at(q.o_stride), d.head_dim_v, 2);
      mark(q.lse, at(q.row_stride), 1, 4);
    }
    if (!d.finalize || chain_ > 1) {
      mark(q.state_o, at(q.state_stride), d.head_dim_v, elem_bytes(d.state_dtype));
      mark(q.state_l, at(q.row_stride), 1, 4);
      mark(q.state_m, at(q.row_stride), 1, 4);
    }
  });
  for (size_t i = 0; i < arena_.size(); ++i) {
    if (!mine[i] && result_[i] != arena_[i]) return fmt::format("byte {} was written", i);
  }
  // A stride coprime to the row count visits rows of all kinds.
  std::string bad;
  int64_t step = std::max<int64_t>(1, rows / max_rows);
  int64_t n = 0;
  int64_t next = 0;
  for_each_row([&](int i, int b, int t, int h) {
    if (n++ == next && bad.empty()) {
      bad = check_row(i, b, t, h);
      next = n + (step > 1 ? static_cast<int64_t>((n * 2654435761u >> 8) % (2 * step - 1)) : 0);
    }
  });
  return bad;
}

}  // namespace braid::cuda::test
