#include "braid/kernels/cuda/experts/device/route.h"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kChooseWarps = 8;  // warps in a CTA that only chooses
constexpr int64_t kMostInOne = 1024;
constexpr unsigned kAll = 0xffffffffu;
constexpr float kLeastSum = 1e-20f;  // as of ops/route.cc

struct Args {
  RouteParams p;
  int k;
  int kept_groups;
  int group_size;  // E without groups
  bool two_best;
  uint8_t score, weight;
  float scale;
};

// Numbers in the order of floats, 0 below all others; both zeros are the same number.
__device__ inline uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float number_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// NaN counts as the lowest.
__device__ inline float or_lowest(float x) {
  return isnan(x) ? -INFINITY : x;
}

__device__ inline float sum_of_warp(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(kAll, x, mask);
  return x;
}

// The largest key of a warp's lanes, and the lowest index with this key.
struct Best {
  uint32_t key;
  int index;
};
__device__ inline Best best_of_warp(uint32_t key, int index) {
  const uint32_t top = __reduce_max_sync(kAll, key);
  const int first = static_cast<int>(
      __reduce_min_sync(kAll, key == top ? static_cast<uint32_t>(index) : 0x7fffffffu));
  return {top, first};
}

// Lane i has keys of the experts i, i + 32, ..., at most kEach; 0 for an expert taken or absent.
template <int kEach>
__device__ inline Best best_expert(const uint32_t (&key)[kEach], int lane) {
  uint32_t top = 0;
  int index = 0x7fffffff;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (key[i] > top) top = key[i], index = lane + 32 * i;
  }
  return best_of_warp(top, index);
}

// Makes the keys of all groups but the best the lowest. `value` [E] is this warp's own.
template <int kEach>
__device__ inline void drop_groups(const Args& a, uint32_t (&key)[kEach], uint32_t* value,
                                   int lane) {
  const int E = a.p.E, groups = E / a.group_size;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (lane + 32 * i < E) value[lane + 32 * i] = key[i];
  }
  __syncwarp();
  uint32_t group[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    group[i] = 0;
    const int g = lane + 32 * i;
    if (g >= groups) continue;
    uint32_t first = 0, second = 0;
    for (int e = 0; e < a.group_size; ++e) {
      const uint32_t x = value[g * a.group_size + e];
      if (x > first) {
        second = first, first = x;
      } else if (x > second) {
        second = x;
      }
    }
    float of_group = number_of(first);
    if (a.two_best && a.group_size > 1) of_group += number_of(second);
    group[i] = ordered(or_lowest(of_group));
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (lane + 32 * i < groups) value[lane + 32 * i] = 0;  // kept?
  }
  __syncwarp();
  for (int n = 0; n < a.kept_groups; ++n) {
    const Best best = best_expert(group, lane);
    if (lane == 0) value[best.index] = 1;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (best.index == lane + 32 * i) group[i] = 0;
    }
  }
  __syncwarp();
  const uint32_t lowest = ordered(-INFINITY);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = lane + 32 * i;
    if (e < E && value[e / a.group_size] == 0) key[i] = lowest;
  }
  __syncwarp();
}

// A warp's choice for one token: the experts to `chosen` [k], the weights to `weight` [k];
// `scratch` [E] is this warp's own.
template <int kEach>
__device__ inline void choose(const Args& a, const float* logits, int32_t* chosen, float* weight,
                              uint32_t* scratch) {
  const int lane = static_cast<int>(threadIdx.x) & 31, E = a.p.E;
  constexpr auto kSoftmax = static_cast<uint8_t>(ops::RouteScore::softmax);
  constexpr auto kSigmoid = static_cast<uint8_t>(ops::RouteScore::sigmoid);
  float s[kEach];
  float top = -INFINITY;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = lane + 32 * i;
    s[i] = e < E ? or_lowest(__ldcg(logits + e)) : -INFINITY;
    top = fmaxf(top, s[i]);
  }
  if (a.score == kSoftmax) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, mask));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      s[i] = lane + 32 * i >= E ? 0 : top == -INFINITY ? 1 : expf(s[i] - top);
      sum += s[i];
    }
    sum = sum_of_warp(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) s[i] /= sum;
  } else if (a.score == kSigmoid) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) s[i] = 1 / (1 + expf(-s[i]));
  }
  uint32_t key[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = lane + 32 * i;
    key[i] = e < E ? ordered(or_lowest(a.p.bias ? s[i] + __ldg(a.p.bias + e) : s[i])) : 0;
  }
  if (a.group_size < E) drop_groups(a, key, scratch, lane);

  // Scores by expert, for all lanes to read.
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (lane + 32 * i < E) scratch[lane + 32 * i] = __float_as_uint(s[i]);
  }
  __syncwarp();
  float sum = 0, largest = -INFINITY;
  for (int j = 0; j < a.k; ++j) {
    const Best best = best_expert(key, lane);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (best.index == lane + 32 * i) key[i] = 0;
    }
    const float w = __uint_as_float(scratch[best.index]);
    largest = fmaxf(largest, w);
    sum += w;
    if (lane == 0) chosen[j] = best.index;
    if (lane == 0) weight[j] = w;
  }
  __syncwarp();
  constexpr auto kNormalised = static_cast<uint8_t>(ops::RouteWeight::normalised);
  constexpr auto kOfChosen = static_cast<uint8_t>(ops::RouteWeight::softmax);
  float of_chosen = 0;
  if (a.weight == kOfChosen) {
    for (int j = lane; j < a.k; j += 32) {
      const float e = largest == -INFINITY ? 1 : expf(weight[j] - largest);
      weight[j] = e;
      of_chosen += e;
    }
    of_chosen = sum_of_warp(of_chosen);
  }
  for (int j = lane; j < a.k; j += 32) {
    float w = weight[j];
    if (a.weight == kNormalised) w /= sum + kLeastSum;
    if (a.weight == kOfChosen) w /= of_chosen;
    weight[j] = w * a.scale;
  }
}

__device__ inline int live_tokens(const RouteParams& p) {
  return p.tokens ? static_cast<int>(__ldcg(reinterpret_cast<const long long*>(p.tokens))) : p.T;
}

// Exclusive sum over a CTA's threads, in their order; `parts` [kWarps] is shared memory.
__device__ inline int sum_before(int x, int* parts) {
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) / 32;
  int sum = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) parts[warp] = sum;
  __syncthreads();
  int before = 0;
  for (int w = 0; w < warp; ++w) before += parts[w];
  return before + sum - x;
}

// Few choices, in one CTA: thread e finds the rows of expert e among the choices in shared memory.
template <int kEach>
__global__ void __launch_bounds__(kThreads) route_in_one_kernel(const __grid_constant__ Args a) {
  // Of all experts for each warp, or for every fourth.
  constexpr int kStep = kEach > 8 ? 4 : 1;
  __shared__ uint32_t scratch[kWarps / kStep][32 * kEach];
  __shared__ __align__(16) int32_t chosen[kMostInOne + 4];
  __shared__ int parts[kWarps];
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const RouteParams& p = a.p;
  const int live = live_tokens(p), warp = static_cast<int>(threadIdx.x) / 32, n = live * a.k;
  if (warp % kStep == 0) {
    for (int t = warp / kStep; t < live; t += kWarps / kStep) {
      choose<kEach>(a, p.logits + static_cast<int64_t>(t) * p.E, chosen + t * a.k,
                    p.weight + t * a.k, scratch[warp / kStep]);
    }
  }
  if (threadIdx.x < 4) chosen[n + threadIdx.x] = -1;
  __syncthreads();
  const int e = static_cast<int>(threadIdx.x);
  int count = 0;
  for (int i = 0; i < n; i += 4) {
    const int4 c = *reinterpret_cast<const int4*>(chosen + i);
    count += (c.x == e) + (c.y == e) + (c.z == e) + (c.w == e);
  }
  int row = sum_before(count, parts);
  if (e <= p.E) p.begin[e] = row;
  if (p.E == kThreads && e == kThreads - 1) p.begin[p.E] = row + count;
  for (int i = 0; count > 0; ++i) {
    if (chosen[i] != e) continue;
    p.token[row] = i / a.k;
    p.place[i] = row++;
    --count;
  }
  if (threadIdx.x == 0 && p.expert_rows) *p.expert_rows = n;
}

template <int kEach>
__global__ void __launch_bounds__(32 * kChooseWarps) choose_kernel(const __grid_constant__ Args a) {
  __shared__ uint32_t scratch[kChooseWarps][32 * kEach];
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const RouteParams& p = a.p;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int t = static_cast<int>(blockIdx.x) * kChooseWarps + warp, live = live_tokens(p);
  if (t == 0 && threadIdx.x == 0 && p.expert_rows) {
    *p.expert_rows = static_cast<int64_t>(live) * a.k;
  }
  if (t >= live) return;
  const int64_t first = static_cast<int64_t>(t) * a.k;
  choose<kEach>(a, p.logits + static_cast<int64_t>(t) * p.E, p.chosen + first, p.weight + first,
                scratch[warp]);
}

// CTA e gives places to expert e's rows: each warp counts a share of the choices, and the counts
// before a warp give the begin of its own rows.
__global__ void __launch_bounds__(kThreads) sort_kernel(const __grid_constant__ Args a) {
  __shared__ int below[kWarps], equal[kWarps];
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const RouteParams& p = a.p;
  const int e = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) & 31;
  const int warp = static_cast<int>(threadIdx.x) / 32, n = live_tokens(p) * a.k;
  const int share = ((n + kWarps - 1) / kWarps + 31) / 32 * 32;
  const int first = min(n, warp * share), last = min(n, first + share);
  int lower = 0, own = 0;
#pragma unroll 4
  for (int i = first + lane; i < last; i += 32) {
    const int c = __ldcg(p.chosen + i);
    lower += c < e;
    own += c == e;
  }
  lower = __reduce_add_sync(kAll, lower);
  own = __reduce_add_sync(kAll, own);
  if (lane == 0) below[warp] = lower, equal[warp] = own;
  __syncthreads();
  int begin = 0, row = 0, count = 0;
  for (int w = 0; w < kWarps; ++w) {
    begin += below[w];
    if (w < warp) row += equal[w];
    count += equal[w];
  }
  row += begin;
  if (threadIdx.x == 0) {
    p.begin[e] = begin;
    if (e + 1 == p.E) p.begin[p.E] = begin + count;
  }
  if (own == 0) return;
  for (int i = first; i < last; i += 32) {
    const bool mine = i + lane < last && __ldcg(p.chosen + i + lane) == e;
    const unsigned who = __ballot_sync(kAll, mine);
    if (mine) {
      const int at = row + __popc(who & ((1u << lane) - 1));
      p.token[at] = (i + lane) / a.k;
      p.place[i + lane] = at;
    }
    row += __popc(who);
  }
}

}  // namespace

bool route_in_one(int64_t T, int64_t k) {
  return T * k <= kMostInOne && T <= 2 * kWarps;
}

void route(const RouteParams& p, LaunchContext context) {
  const ops::RouteAttrs& r = p.attrs;
  if (p.T == 0) return;
  const Args args = {.p = p,
                     .k = static_cast<int>(r.top_k),
                     .kept_groups = static_cast<int>(r.kept_groups),
                     .group_size = static_cast<int>(p.E / r.groups),
                     .two_best = r.group_score == ops::GroupScore::two_best,
                     .score = static_cast<uint8_t>(r.score),
                     .weight = static_cast<uint8_t>(r.weight),
                     .scale = r.scale};
  const auto by_experts = [&](auto&& run) {
    p.E <= 128   ? run.template operator()<4>()
    : p.E <= 256 ? run.template operator()<8>()
                 : run.template operator()<32>();
  };
  if (route_in_one(p.T, r.top_k)) {
    by_experts([&]<int kEach>() {
      launch_kernel(context, route_in_one_kernel<kEach>, dim3(1), dim3(kThreads), 0, args);
    });
    return;
  }
  const auto ctas = static_cast<unsigned>((p.T + kChooseWarps - 1) / kChooseWarps);
  by_experts([&]<int kEach>() {
    launch_kernel(context, choose_kernel<kEach>, dim3(ctas), dim3(32 * kChooseWarps), 0, args);
  });
  context.pdl = true;
  launch_kernel(context, sort_kernel, dim3(static_cast<unsigned>(p.E)), dim3(kThreads), 0, args);
}

}  // namespace braid::cuda
