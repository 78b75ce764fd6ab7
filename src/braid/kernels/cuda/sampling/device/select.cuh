#pragma once

#include <cstdint>

#include "braid/kernels/cuda/sampling/device/scores.cuh"
#include "braid/kernels/cuda/sampling/device/select_shared.cuh"
#include "braid/kernels/cuda/sampling/device/sort.cuh"
#include "braid/kernels/cuda/sampling/device/team.cuh"

// Finds an element of a row by the elements before, without sorting the row: in the order of keys
// by a histogram and a sort of a single bin, in the order of ids by sums per warp.
namespace braid::cuda::sampling {

// Everything runs on all threads of all CTAs; results are the first CTA's unless said.
template <bool kCluster>
class Selector {
 public:
  __device__ Selector(Team<kCluster>& team, SelectShared& shared, const Scores& scores)
      : team_(team), s_(shared), scores_(scores) {}

  __device__ uint64_t total_weight() const { return weight_through(kBins - 1); }

  // In all CTAs.
  __device__ uint64_t count_above_floor() {
    uint64_t count = 0;
    sweep([&](float x, int32_t) { count += x >= scores_.floor; });
    return team_.reduce(count, Sum{});
  }

  // Asks n questions: next(k, previous answer) is the k-th Query, made after the bins exist.
  // Returns the last answer. A single loop keeps the code small enough for the cache.
  template <class Next>
  __device__ Found answer(int n, Next next) {
    Found found{};
    Query q{};
    bool open = false;
    uint64_t base_count = 0;
    uint64_t base_weight = 0;
#pragma unroll 1
    for (int k = 0; k < n;) {
      if (!open && refined_) {
        refined_ = false;
        stale_ = true;
      }
      if (stale_) histogram();
      stale_ = false;
      if (!open) {
        q = next(k, found);
        base_count = 0;
        base_weight = 0;
        open = true;
      }
      const uint64_t local = q.want - (q.by == By::count ? base_count : base_weight);
      uint64_t m = local;
      if (listed_ == 0) {
        const Decision d = decide(q.by, local);
        const bool all = !refined_ && d.above_count + d.bin_count <= kListSize;
        if (!all) {
          m -= q.by == By::count ? d.above_count : d.above_weight;
          base_count += d.above_count;
          base_weight += d.above_weight;
          if (d.bin_weight == 0 && !q.need_key) {
            team_.sync();
            found = {base_weight, 0};
            open = false;
            ++k;
            continue;
          }
          if (d.bin_count > kListSize) {
            if (refine(d.bin)) {
              found = equal_class(q.by, m, base_weight, q.need_key);
              open = false;
              ++k;
            } else {
              stale_ = true;
            }
            continue;
          }
        }
        // If all equally likely elements fit the list, the list answers the next question as well.
        const uint32_t first = all ? 0 : d.bin;
        gather([&](float x, int32_t) {
          const auto bin = static_cast<uint32_t>(place(x));  // -1 is none
          return first <= bin && bin <= d.bin;
        });
        if (all) listed_ = d.above_count + d.bin_count;
        if (team_.rank() == 0) sort_list(s_.list, static_cast<int>(s_.list_size));
      }
      if (team_.rank() == 0) find_in_list(q.by, m);
      found = {base_weight + s_.found.weight, s_.found.key};
      open = false;
      ++k;
    }
    return found;
  }

  // Whether the first CTA's list holds, sorted, all elements up to the last answer and more.
  __device__ bool listed() const {
    return listed_ != 0;
  }

  // Puts the keys of all elements with `wanted(x, id)`, at most kListSize, into the first CTA's
  // list, in no order.
  template <class F>
  __device__ void gather(F wanted) {
    uint32_t* size = team_.at(&s_.list_size, 0);
    uint64_t* list = team_.at(s_.list, 0);
    sweep([&](float x, int32_t id) {
      if (wanted(x, id)) {
        const uint32_t i = atomicAdd(size, 1u);
        if (i < kListSize) list[i] = key_of(x, id);
      }
    });
    team_.sync();
  }
  // Before `gather` outside of `select`, with a sync between.
  __device__ void clear_list() {
    if (threadIdx.x == 0) s_.list_size = 0;
  }

  // Sums weight(x) over the row for `pick`; the total, in all CTAs.
  template <class F>
  __device__ uint64_t sum_in_order(F weight) {
    const Segment seg = segment();
    uint64_t sum = 0;
#pragma unroll 4
    for (int i = seg.begin + lane(); i < seg.end; i += 32) sum += weight(scores_.value(i));
    const uint64_t own = warp_reduce(sum, Sum{});
    __syncthreads();
    if (lane() == 0) s_.warp_weight[threadIdx.x / 32] = own;
    return team_.reduce(sum, Sum{});
  }

  // The first id, in id order, at which the sums of `sum_in_order` reach `want` (equal in all CTAs,
  // 1 to the total), into the first CTA's `chosen`: present after the next sync.
  template <class F>
  __device__ void pick(F weight, uint64_t want) {
    uint64_t before =
        team_.before() + sum_before(s_.warp_weight, static_cast<int>(threadIdx.x / 32));
    if (before < want && want <= before + s_.warp_weight[threadIdx.x / 32]) {
      const Segment seg = segment();
      // A lane takes 4 ids at a time, and the lane with the answer walks its four.
      for (int begin = seg.begin; begin < seg.end; begin += 4 * 32) {
        uint64_t own[4];
        uint64_t sum = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int i = begin + 4 * lane() + j;
          own[j] = i < seg.end ? weight(scores_.value(i)) : 0;
          sum += own[j];
        }
        const uint64_t through = before + warp_prefix(sum);
        const uint32_t reached = __ballot_sync(~0u, through >= want);
        before = __shfl_sync(~0u, through, 31);
        if (reached == 0) continue;
        if (lane() == __ffs(reached) - 1) {
          uint64_t at = through - sum;
          int j = 0;
          while (at + own[j] < want) at += own[j++];
          *team_.at(&s_.chosen, 0) = scores_.first_id + begin + 4 * lane() + j;
        }
        break;
      }
    }
  }

 private:
  struct Segment {
    int begin;
    int end;
  };

  __device__ static int lane() {
    return threadIdx.x % 32;
  }

  // A warp's own run of ids.
  __device__ Segment segment() const {
    const int each = (scores_.n + 32 * kWarps - 1) / (32 * kWarps) * 32;
    const int begin = min(scores_.n, static_cast<int>(threadIdx.x / 32) * each);
    return {begin, min(scores_.n, begin + each)};
  }

  template <class F>
  __device__ void sweep(F f) {
#pragma unroll 4
    for (int i = threadIdx.x; i < scores_.n; i += kSampleThreads) {
      f(scores_.value(i), scores_.first_id + i);
    }
  }

  // The bin of x, -1 for no bin.
  __device__ int place(float x) const {
    if (!refined_) return x >= scores_.floor ? scores_.bin(x) : -1;
    const uint32_t order = order_of(x);
    return low_ <= order && order <= high_ ? static_cast<int>((high_ - order) >> shift_) : -1;
  }

  __device__ uint64_t weight_through(int bin) const {
    return static_cast<uint64_t>(s_.high[bin]) << 32 | s_.low[bin];
  }

  __device__ void histogram() {
    for (int i = threadIdx.x; i < kBins; i += kSampleThreads) {
      s_.count[i] = 0;
      s_.low[i] = 0;
      s_.high[i] = 0;
    }
    __syncthreads();
    // Most values lie in the last bin, which is summed in registers.
    uint32_t rest_count = 0;
    uint64_t rest_weight = 0;
    sweep([&](float x, int32_t) {
      const int b = place(x);
      if (b < 0) return;
      const uint64_t w = scores_.weight(x);
      if (b == kBins - 1) {
        ++rest_count;
        rest_weight += w;
      } else {
        add(b, 1, w);
      }
    });
    rest_count = __reduce_add_sync(~0u, rest_count);
    rest_weight = warp_reduce(rest_weight, Sum{});
    if (lane() == 0) add(kBins - 1, rest_count, rest_weight);
    team_.sync();
    if (team_.rank() == 0) merge();
  }

  __device__ void add(int bin, uint32_t count, uint64_t weight) {
    atomicAdd(&s_.count[bin], count);
    if (weight == 0) return;
    const auto low = static_cast<uint32_t>(weight);
    const uint32_t old = atomicAdd(&s_.low[bin], low);
    const uint32_t high = static_cast<uint32_t>(weight >> 32) + (old + low < old);
    if (high != 0) atomicAdd(&s_.high[bin], high);
  }

  // Each thread sums its bins over all CTAs; prefixes replace the first CTA's histogram.
  __device__ void merge() {
    constexpr int kEach = kBins / kSampleThreads;
    static_assert(kEach == 2);
    const int first = threadIdx.x * kEach;
    uint32_t count[kEach] = {};
    uint64_t weight[kEach] = {};
#pragma unroll 4
    for (int r = 0; r < team_.size(); ++r) {
      const uint2 c = *reinterpret_cast<const uint2*>(team_.at(&s_.count[first], r));
      const uint2 l = *reinterpret_cast<const uint2*>(team_.at(&s_.low[first], r));
      const uint2 h = *reinterpret_cast<const uint2*>(team_.at(&s_.high[first], r));
      const uint32_t cs[kEach] = {c.x, c.y};
      const uint32_t ls[kEach] = {l.x, l.y};
      const uint32_t hs[kEach] = {h.x, h.y};
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        count[i] += cs[i];
        weight[i] += static_cast<uint64_t>(hs[i]) << 32 | ls[i];
      }
    }
#pragma unroll
    for (int i = 1; i < kEach; ++i) {
      count[i] += count[i - 1];
      weight[i] += weight[i - 1];
    }
    const uint32_t count_before = block_prefix(count[kEach - 1], s_.scratch) - count[kEach - 1];
    const uint64_t weight_before = block_prefix(weight[kEach - 1], s_.scratch) - weight[kEach - 1];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint64_t w = weight_before + weight[i];
      s_.count[first + i] = count_before + count[i];
      s_.low[first + i] = static_cast<uint32_t>(w);
      s_.high[first + i] = static_cast<uint32_t>(w >> 32);
    }
    __syncthreads();
  }

  // The bin in which `want` is reached, in all CTAs; empties the list.
  __device__ Decision decide(By by, uint64_t want) {
    if (team_.rank() == 0) {
      clear_list();
      for (int b = threadIdx.x; b < kBins; b += kSampleThreads) {
        const uint32_t count = s_.count[b];
        const uint64_t weight = weight_through(b);
        const uint32_t count_before = b > 0 ? s_.count[b - 1] : 0;
        const uint64_t weight_before = b > 0 ? weight_through(b - 1) : 0;
        const bool here = by == By::count ? count_before < want && want <= count
                                          : weight_before < want && want <= weight;
        if (here) {
          s_.decision = {static_cast<uint32_t>(b),
                         count - count_before,
                         count_before,
                         weight_before,
                         weight - weight_before,
                         0};
        }
      }
    }
    team_.sync();
    return *team_.at(&s_.decision, 0);
  }

  // In the first CTA: the sorted list's element at which count or weight reaches m.
  __device__ void find_in_list(By by, uint64_t m) {
    const int n = static_cast<int>(s_.list_size);
    constexpr int kEach = kListSize / kSampleThreads;
    const int first = threadIdx.x * kEach;
    uint64_t weight[kEach];
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      weight[i] = first + i < n ? scores_.weight(value_of_key(s_.list[first + i])) : 0;
      sum += weight[i];
    }
    uint64_t through = block_prefix(sum, s_.scratch) - sum;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint64_t before = through;
      through += weight[i];
      const bool here =
          by == By::count ? first + i + 1 == static_cast<int>(m) : before < m && m <= through;
      if (here && first + i < n) s_.found = {through, s_.list[first + i]};
    }
    __syncthreads();
  }

  // Narrows the places to bin `bin`; true if all values of the bin are equal.
  __device__ bool refine(uint32_t bin) {
    uint64_t high = 0;
    uint64_t low = 0;
    sweep([&](float x, int32_t) {
      if (place(x) != static_cast<int>(bin)) return;
      const uint64_t order = order_of(x);
      high = Max{}(high, order + 1);
      low = Max{}(low, (1ull << 32) - order);
    });
    high = team_.reduce(high, Max{});
    low = team_.reduce(low, Max{});
    high_ = static_cast<uint32_t>(high - 1);
    low_ = static_cast<uint32_t>((1ull << 32) - low);
    refined_ = true;
    shift_ = high_ == low_ ? 0 : max(0, 32 - __clz(high_ - low_) - kBinBits);
    return high_ == low_;
  }

  // Among equal elements, in id order.
  __device__ Found equal_class(By by, uint64_t m, uint64_t base_weight, bool need_key) {
    const uint64_t each = scores_.weight(value_of(low_));
    if (by == By::weight) m = (m + each - 1) / each;
    Found found{base_weight + m * each, 0};
    if (!need_key) return found;
    if (team_.rank() == 0 && threadIdx.x == 0) s_.decision.want = m;
    team_.sync();
    const auto match = [this](float x) { return static_cast<uint64_t>(order_of(x) == low_); };
    sum_in_order(match);
    pick(match, team_.at(&s_.decision, 0)->want);
    team_.sync();
    if (threadIdx.x == 0) found.key = key_of(value_of(low_), s_.chosen);
    return found;
  }

  Team<kCluster>& team_;
  SelectShared& s_;
  const Scores& scores_;
  bool refined_ = false;
  bool stale_ = true;
  uint32_t listed_ = 0;  // elements in the list if it holds all as likely as an earlier answer
  uint32_t low_ = 0;
  uint32_t high_ = 0;
  int shift_ = 0;
};

}  // namespace braid::cuda::sampling
