#pragma once

#include "braid/kernels/cuda/ptx/system.h"
#include "braid/kernels/cuda/sampling/device/sample.h"
#include "braid/kernels/cuda/sampling/device/select.cuh"

// A row of logits from loading to the record, by a team of CTAs.
namespace braid::cuda::sampling {

struct RowShared {
  ReduceShared reduce;
  SelectShared select;
  uint64_t mask_came;
};
static_assert(sizeof(RowShared) <= kSampleSharedBytes);

// SplitMix64, as in the CPU sampler: 53 bits of the number after `state`.
__device__ inline uint64_t next_random(uint64_t state) {
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return z >> 11;
}

// floor(total u) + 1 for u = bits 2^-53: the first integer above total u.
__device__ inline uint64_t above_share(uint64_t total, uint64_t bits) {
  return (__umul64hi(total, bits) << 11 | total * bits >> 53) + 1;
}

__device__ inline float penalized(float x, uint32_t seen, const SamplerParams& p) {
  if (const uint32_t times = seen & kTimesGenerated; times != 0) {
    x = __fsub_rn(x, __fadd_rn(__fmul_rn(p.frequency_penalty, static_cast<float>(times)),
                               p.presence_penalty));
  }
  if (seen == 0 || p.repetition_penalty == 1 || x == -INFINITY) return x;
  x = x > 0 ? __fdiv_rn(x, p.repetition_penalty) : __fmul_rn(x, p.repetition_penalty);
  return fminf(fmaxf(x, -FLT_MAX), FLT_MAX);
}

template <bool kCluster>
class RowSampler {
 public:
  __device__ RowSampler(const SampleCall& call, RowShared& shared, float* values, int row, int slot,
                        int slice)
      : a_(call), s_(shared), team_(shared.reduce), values_(values), row_(row), slot_(slot) {
    p_ = a_.params[slot];
    p_.logprobs = min(p_.logprobs, min(a_.max_logprobs, a_.desc.vocab));
    step_ = *a_.step;
    random_ = a_.states[slot].random + kRandomStep;
    generated_ = a_.states[slot].generated;
    const int counts_row = a_.counts_rows != nullptr ? a_.counts_rows[slot] : slot;
    if (a_.counts != nullptr && counts_row >= 0) {
      counts_ = a_.counts + static_cast<int64_t>(counts_row) * a_.desc.vocab;
    }
    if (a_.biases == nullptr) p_.num_biases = 0;
    begin_ = min(a_.desc.vocab, team_.rank() * slice);
    n_ = min(slice, a_.desc.vocab - begin_);
    plain_ = p_.repetition_penalty == 1 && p_.frequency_penalty == 0 && p_.presence_penalty == 0;
  }

  __device__ void run() {
    const bool masked = p_.mask_wait_us != 0 && a_.mask != nullptr && wait_for_mask();
    load(masked);
    double log_sum = 0;
    int num_top = 0;
    if (p_.logprobs >= 0) log_sum = report(num_top);
    const float top = value_of_key(best_);
    if (top == -INFINITY) status_ |= kSampleNoToken;
    const bool drawn = top > -INFINITY && p_.temperature > 0;
    if (drawn) draw(top);
    if (team_.rank() == 0 && threadIdx.x == 0) {
      finish(drawn ? s_.select.chosen : id_of_key(best_), log_sum, num_top);
    }
  }

 private:
  __device__ const float* raw() const {
    return a_.logits + row_ * a_.logits_stride;  // [V]
  }
  __device__ int64_t report_row() const {
    const int rows = a_.ring_rows > 0 ? a_.ring_rows : a_.desc.capacity;
    return static_cast<int64_t>(step_ % static_cast<uint64_t>(a_.ring)) * rows + row_;
  }

  // All CTAs agree on whether it came in time.
  __device__ bool wait_for_mask() {
    if (team_.rank() == 0 && threadIdx.x == 0) {
      const uint64_t limit = uint64_t{1000} * p_.mask_wait_us;
      const uint64_t start = ptx::global_nanoseconds();
      bool came = false;
      do {
        came = ptx::load_acquire_system(a_.mask_ready + slot_) >= step_ + 1;
      } while (!came && ptx::global_nanoseconds() - start < limit);
      if (!came) status_ |= kSampleMaskLate;
      s_.mask_came = came;
    }
    team_.sync();
    return *team_.at(&s_.mask_came, 0) != 0;
  }

  // The largest value of a thread, the first among equals.
  struct Best {
    float x = -INFINITY;
    int i;
    __device__ void see(float y, int at) {
      if (y > x) {
        x = y;
        i = at;
      }
    }
  };

  __device__ uint64_t best_of_team(const Best& best, bool& flag) {
    const bool any = static_cast<int>(threadIdx.x) < n_;
    return team_.reduce(any ? key_of(best.x, begin_ + best.i) : 0, Max{}, flag);
  }

  // Values into the team's memory, and the largest ones.
  __device__ void load(bool masked) {
    const float* logits = raw() + begin_;
    bool not_finite = false;
    Best best{.i = static_cast<int>(threadIdx.x)};
    const auto take = [&](float x, int i) {
      not_finite |= !(x < INFINITY);
      x = cleaned(x);
      best.see(x, i);
      return x;
    };
    constexpr int kBatch = 8;  // loads in flight
    const int fours = reinterpret_cast<uint64_t>(logits) % 16 == 0 ? n_ / 4 : 0;
    for (int base = threadIdx.x; base < fours; base += kBatch * kSampleThreads) {
      float4 x[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int i = base + j * kSampleThreads;
        if (i < fours) x[j] = reinterpret_cast<const float4*>(logits)[i];
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int i = base + j * kSampleThreads;
        if (i >= fours) break;
        x[j].x = take(x[j].x, 4 * i);
        x[j].y = take(x[j].y, 4 * i + 1);
        x[j].z = take(x[j].z, 4 * i + 2);
        x[j].w = take(x[j].w, 4 * i + 3);
        reinterpret_cast<float4*>(values_)[i] = x[j];
      }
    }
    for (int base = 4 * fours + threadIdx.x; base < n_; base += kBatch * kSampleThreads) {
      float x[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int i = base + j * kSampleThreads;
        if (i < n_) x[j] = logits[i];
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int i = base + j * kSampleThreads;
        if (i < n_) values_[i] = take(x[j], i);
      }
    }
    const bool penalties = counts_ != nullptr && !plain_;
    changed_ = masked || penalties || p_.num_biases > 0;
    if (changed_) {
      if (p_.logprobs >= 0) raw_best_ = best_of_team(best, not_finite);
      __syncthreads();  // values_ are seen by all threads of the CTA
      if (p_.num_biases > 0) bias();
      best = change(masked, penalties);
    }
    best_ = best_of_team(best, not_finite);
    if (not_finite) status_ |= kSampleNotFinite;
    if (!changed_) raw_best_ = best_;
    __syncthreads();  // values_ are seen by all threads of the CTA
  }

  // Biases of this CTA's ids, in place.
  __device__ void bias() {
    const SampleBias* biases = a_.biases + static_cast<int64_t>(slot_) * kMaxBiases;
    for (int i = threadIdx.x; i < p_.num_biases; i += kSampleThreads) {
      const SampleBias b = biases[i];
      const int at = b.id - begin_;
      if (at < 0 || at >= n_ || generated_ >= b.until) continue;
      atomicAdd(values_ + at, b.add);  // an id may be there twice
    }
    __syncthreads();
  }

  // Penalties and the mask, in place.
  __device__ Best change(bool masked, bool penalties) {
    const uint32_t* counts = penalties ? counts_ + begin_ : nullptr;
    const uint32_t* mask =
        a_.mask + static_cast<int64_t>(slot_) * ((a_.desc.vocab + 31) / 32) + begin_ / 32;
    Best best{.i = static_cast<int>(threadIdx.x)};
#pragma unroll 4
    for (int i = threadIdx.x; i < n_; i += kSampleThreads) {
      const uint32_t seen = penalties ? counts[i] : 0;
      const uint32_t allowed = masked ? mask[i / 32] >> (i % 32) & 1 : 1;
      const float x = allowed ? penalized(values_[i], seen, p_) + 0.f : -INFINITY;
      values_[i] = x;
      best.see(x, i);
    }
    return best;
  }

  // Into the first CTA's `chosen`, for its first thread.
  __device__ void draw(float top) {
    const Scores scores{values_,
                        true,
                        n_,
                        begin_,
                        top,
                        p_.temperature,
                        __fadd_rn(top, __fmul_rn(p_.temperature, p_.log_min_p)),
                        weight_scale(a_.desc.vocab)};
    Selector<kCluster> selector(team_, s_.select, scores);
    const uint64_t bits = next_random(random_);
    const bool nucleus = p_.top_p < 1;
    bool cut = p_.top_k > 0 && p_.top_k < a_.desc.vocab;
    if (cut && p_.log_min_p > -INFINITY) {
      cut = static_cast<uint64_t>(p_.top_k) < selector.count_above_floor();
    }
    if (cut || nucleus) {
      const Found found = selector.answer(cut + nucleus + 1, [&](int k, const Found& before) {
        const uint64_t total = k > 0 ? before.weight : selector.total_weight();
        if (k == 0 && cut) return Query{By::count, static_cast<uint64_t>(p_.top_k), false};
        if (k == cut && nucleus) {
          const auto want = static_cast<uint64_t>(
              ceil(static_cast<double>(p_.top_p) * static_cast<double>(total)));
          return Query{By::weight, min(max(want, uint64_t{1}), total), false};
        }
        return Query{By::weight, above_share(total, bits), true};
      });
      if (team_.rank() == 0 && threadIdx.x == 0) s_.select.chosen = id_of_key(found.key);
      return;
    }
    const auto weight = [&](float x) { return scores.weight(x); };
    const uint64_t total = selector.sum_in_order(weight);
    selector.pick(weight, above_share(total, bits));
    team_.sync();
  }

  // Log of the sum over e^logit; alternatives go to the host.
  __device__ double report(int& num_top) {
    // Where penalties or a mask changed the values, the model's own are read again.
    const float top = value_of_key(raw_best_);
    const Scores scores{
        changed_ ? raw() + begin_ : values_, !changed_, n_, begin_, top, 1, -INFINITY,
        weight_scale(a_.desc.vocab)};
    uint64_t sum = 0;
    for (int i = threadIdx.x; i < n_; i += kSampleThreads) sum += scores.weight(scores.value(i));
    sum = team_.reduce(sum, Sum{});
    const double log_sum = top + log(static_cast<double>(sum) / scores.scale);
    if (p_.logprobs == 0 || a_.tops == nullptr) return log_sum;
    Selector<kCluster> selector(team_, s_.select, scores);
    const Found last = selector.answer(1, [&](int, const Found&) {
      return Query{By::count, static_cast<uint64_t>(p_.logprobs), true};
    });
    if (!selector.listed()) {
      selector.clear_list();
      if (team_.rank() == 0 && threadIdx.x == 0) s_.select.boundary = last.key;
      team_.sync();
      const uint64_t boundary = *team_.at(&s_.select.boundary, 0);
      selector.gather([&](float x, int32_t id) { return key_of(x, id) >= boundary; });
      if (team_.rank() == 0) sort_list(s_.select.list, p_.logprobs);
    }
    if (team_.rank() == 0) {
      num_top = p_.logprobs;
      for (int i = threadIdx.x; i < num_top; i += kSampleThreads) {
        const uint64_t key = s_.select.list[i];
        a_.tops[report_row() * a_.max_logprobs + i] = {
            id_of_key(key), static_cast<float>(value_of_key(key) - log_sum)};
      }
      __threadfence_system();
    }
    team_.sync();
    return log_sum;
  }

  __device__ void finish(int32_t id, double log_sum, int num_top) {
    a_.token_ids[row_] = id;
    if (a_.slot_tokens != nullptr) a_.slot_tokens[slot_] = id;
    if (counts_ != nullptr) counts_[id] += 1;
    a_.states[slot_].generated = generated_ + 1;
    if (p_.temperature > 0) a_.states[slot_].random = random_;
    if (a_.records == nullptr) return;
    const float logprob = p_.logprobs >= 0 ? static_cast<float>(cleaned(raw()[id]) - log_sum) : 0.f;
    if (num_top > 0) __threadfence_system();
    // A single store: readers see the whole record.
    ptx::store_relaxed_system(
        reinterpret_cast<uint4*>(a_.records + report_row()),
        {static_cast<uint32_t>(id), __float_as_uint(logprob),
         static_cast<uint32_t>(num_top) | status_ << 16, static_cast<uint32_t>(step_ + 1)});
  }

  const SampleCall& a_;
  RowShared& s_;
  Team<kCluster> team_;
  float* values_;  // [n], this CTA's slice
  int row_;
  int slot_;
  int begin_;
  int n_;
  SamplerParams p_;
  uint64_t step_;
  uint64_t random_;
  uint32_t generated_;
  uint32_t* counts_ = nullptr;  // [V] of this sequence
  uint64_t best_ = 0;
  uint64_t raw_best_ = 0;
  uint32_t status_ = 0;
  bool plain_;
  bool changed_ = false;
};

}  // namespace braid::cuda::sampling
