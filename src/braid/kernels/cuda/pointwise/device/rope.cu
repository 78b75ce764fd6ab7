#include "braid/kernels/cuda/pointwise/device/rope.h"

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/live.cuh"
#include "braid/kernels/cuda/pointwise/device/reduce.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct RopeArgs {
  const int32_t* positions;  // [T]
  const int32_t* slots;      // [T]; null: token t has slot t
  const uint64_t* turns;     // [pairs]
  const void* q_norm;        // [D], or null
  const void* k_norm;
  DType q_norm_dtype;
  DType k_norm_dtype;
  int q_heads;
  int kv_heads;
  int head_dim;
  int pairs;  // rotary_dim / 2
  bool interleaved;
  float factor;
  float eps;
  int64_t num_slots;
  LiveRows live;
};

enum class Role { q, k, v, none };

// Unit u in a head is two vectors with V elements, which turn in pairs u * V ...: for halves [uV,
// uV + V) and the same after `pairs`, interleaved [2uV, 2uV + 2V). Columns that do not turn follow
// unchanged.
struct Unit {
  int first, second;  // columns
  bool turns;
};
template <int V>
__device__ inline Unit unit_of(int u, const RopeArgs& args) {
  const bool turns = u * V < args.pairs;
  if (turns && !args.interleaved) return {u * V, args.pairs + u * V, true};
  return {2 * u * V, 2 * u * V + V, turns};
}

struct Head {
  Role role;
  int index;  // among its projection's
};
__device__ inline Head head_of(int head, const RopeArgs& args) {
  if (head < args.q_heads) return {Role::q, head};
  head -= args.q_heads;
  if (head < args.kv_heads) return {Role::k, head};
  head -= args.kv_heads;
  return {head < args.kv_heads ? Role::v : Role::none, head};
}

// cos and sin of position * turns for all pairs, into shared memory.
__device__ inline void angles(int64_t position, const RopeArgs& args, float* cos, float* sin) {
  const int threads = blockDim.x * blockDim.y;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < args.pairs; i += threads) {
    // The product modulo 2^64 is the angle modulo a full turn; its top 32 bits as half turns.
    const uint64_t angle = static_cast<uint64_t>(position) * __ldg(&args.turns[i]);
    const float half_turns = __int2float_rn(static_cast<int>(angle >> 32)) * 0x1p-31f;
    float s, c;
    sincospif(half_turns, &s, &c);
    cos[i] = c * args.factor;
    sin[i] = s * args.factor;
  }
}

__device__ inline void stage_norm(const void* norm, DType dtype, int head_dim, float* shared) {
  const int threads = blockDim.x * blockDim.y;
  if (!norm) return;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < head_dim; i += threads) {
    float w[1];
    load_constant(norm, dtype, i, w);
    shared[i] = w[0];
  }
}

template <int V>
__device__ inline void load_shared(const float* p, float (&x)[V]) {
  widen(load_packed<float, V>(p), x);
}

template <int V>
__device__ inline void turn(float (&a)[V], float (&b)[V], const float* cos, const float* sin,
                            bool interleaved) {
  float c[V], s[V];
  load_shared(cos, c);
  load_shared(sin, s);
  const auto rotate = [](float& x, float& y, float c, float s) {
    const float x0 = x, y0 = y;
    x = x0 * c - y0 * s;
    y = x0 * s + y0 * c;
  };
  if (V == 1 || !interleaved) {
#pragma unroll
    for (int t = 0; t < V; ++t) rotate(a[t], b[t], c[t], s[t]);
  } else {
#pragma unroll
    for (int t = 0; t < V / 2; ++t) {
      rotate(a[2 * t], a[2 * t + 1], c[t], s[t]);
      rotate(b[2 * t], b[2 * t + 1], c[V / 2 + t], s[V / 2 + t]);
    }
  }
}

// A token per blockIdx.x; a row of threads takes kHeads heads, kUnits units of each per lane.
template <class X, class Y, class C, int V, int kUnits, int kHeads, bool kNorm>
__global__ void __launch_bounds__(256)
    rope_append_kernel(Rows<const X> q, Rows<const X> k, Rows<const X> v, Rows<Y> y,
                       Rows<C> cache_k, Rows<C> cache_v, RopeArgs args) {
  __shared__ alignas(16) float cos[kMaxRopeHeadDim / 2];
  __shared__ alignas(16) float sin[kMaxRopeHeadDim / 2];
  __shared__ alignas(16) float q_norm[kNorm ? kMaxRopeHeadDim : 4];
  __shared__ alignas(16) float k_norm[kNorm ? kMaxRopeHeadDim : 4];
  ptx::grid_launch_dependents();
  const int64_t token = blockIdx.x;
  const int lanes = blockDim.x;
  const int first_head = blockIdx.y * blockDim.y * kHeads + threadIdx.y;
  if constexpr (kNorm) {
    stage_norm(args.q_norm, args.q_norm_dtype, args.head_dim, q_norm);
    stage_norm(args.k_norm, args.k_norm_dtype, args.head_dim, k_norm);
  }
  // Addresses before the wait: the first reads of parameters take their time.
  const int head_units = args.head_dim / (2 * V);
  const X* from[kHeads];
  Role role[kHeads];
  int index[kHeads];
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const Head head = head_of(first_head + n * blockDim.y, args);
    role[n] = head.role;
    index[n] = head.index;
    const X* data = role[n] == Role::q ? q.data : role[n] == Role::k ? k.data : v.data;
    const int64_t stride = role[n] == Role::q ? q.stride : role[n] == Role::k ? k.stride : v.stride;
    from[n] = data + token * stride + index[n] * args.head_dim;
  }
  Y* const to_y = y.data + token * y.stride;
  if (args.pairs > 0 && args.live.few()) ptx::prefetch_l2(args.positions + token);
  if (args.slots != nullptr && args.live.few()) ptx::prefetch_l2(args.slots + token);
  args.live.prefetch();
  ptx::grid_dependency_wait();
  const int32_t position = args.pairs > 0 ? args.positions[token] : 0;
  const int64_t slot = args.slots != nullptr ? args.slots[token] : token;
  if (args.live.dead_early(token)) return;
  const int64_t live = args.live.count();
  Packed<X, V> pa[kHeads][kUnits], pb[kHeads][kUnits];
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const int units = role[n] == Role::none ? 0 : head_units;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int u = threadIdx.x + i * lanes;
      if (u >= units) break;
      const Unit unit = unit_of<V>(u, args);
      pa[n][i] = load_packed<X, V>(from[n] + unit.first);
      pb[n][i] = load_packed<X, V>(from[n] + unit.second);
    }
  }
  if (args.pairs > 0) angles(position, args, cos, sin);
  if (args.pairs > 0 || kNorm) __syncthreads();
  const bool cached = slot >= 0 && slot < args.num_slots;
  const int64_t cache_head = slot * args.kv_heads;
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const int units = role[n] == Role::none ? 0 : head_units;
    float a[kUnits][V], b[kUnits][V];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (threadIdx.x + i * lanes >= units) break;
      widen(pa[n][i], a[i]);
      widen(pb[n][i], b[i]);
      if constexpr (kNorm) {
#pragma unroll
        for (int t = 0; t < V; ++t) sum += a[i][t] * a[i][t] + b[i][t] * b[i][t];
      }
    }
    float scale = 1;
    if constexpr (kNorm) {
      scale = rsqrtf(sum_lanes(sum, lanes) / static_cast<float>(args.head_dim) + args.eps);
    }
    if (token >= live || (role[n] != Role::q && !cached)) continue;
    const void* weights = role[n] == Role::q   ? args.q_norm
                          : role[n] == Role::k ? args.k_norm
                                               : nullptr;
    const bool normed = kNorm && weights != nullptr;
    const float* norm = role[n] == Role::q ? q_norm : k_norm;
    C* const cache = role[n] == Role::k ? cache_k.data : cache_v.data;
    const int64_t stride = role[n] == Role::k ? cache_k.stride : cache_v.stride;
    C* const to_cache = cache + (cache_head + index[n]) * stride;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int u = threadIdx.x + i * lanes;
      if (u >= units) break;
      const Unit unit = unit_of<V>(u, args);
      if (normed) {
        float wa[V], wb[V];
        load_shared(norm + unit.first, wa);
        load_shared(norm + unit.second, wb);
#pragma unroll
        for (int t = 0; t < V; ++t) {
          a[i][t] *= scale * wa[t];
          b[i][t] *= scale * wb[t];
        }
      }
      if (unit.turns && role[n] != Role::v) {
        turn(a[i], b[i], cos + u * V, sin + u * V, args.interleaved);
      }
      if (role[n] == Role::q) {
        store(to_y + index[n] * args.head_dim + unit.first, a[i]);
        store(to_y + index[n] * args.head_dim + unit.second, b[i]);
      } else {
        store(to_cache + unit.first, a[i]);
        store(to_cache + unit.second, b[i]);
      }
    }
  }
}

template <class X, class Y, class C>
void launch(const RopeAppendParams& p, const RopeConfig& config, const LaunchContext& context) {
  const ops::RopeAttrs& rope = p.attrs.rope;
  const auto head_dim = static_cast<int>(rope.head_dim);
  const TensorView& first = p.q.data ? p.q : p.k;
  const RopeArgs args = {
      .positions = p.positions.as<const int32_t>(),
      .slots = p.slots.as<const int32_t>(),
      .turns = p.turns,
      .q_norm = p.q_norm.data,
      .k_norm = p.k_norm.data,
      .q_norm_dtype = p.q_norm.dtype,
      .k_norm_dtype = p.k_norm.dtype,
      .q_heads = p.q.data ? static_cast<int>(p.q.cols() / head_dim) : 0,
      .kv_heads = p.k.data ? static_cast<int>(p.k.cols() / head_dim) : 0,
      .head_dim = head_dim,
      .pairs = static_cast<int>(rope.rotary_dim / 2),
      .interleaved = rope.pairing == ops::RopePairing::interleaved,
      .factor = rope.attention_factor,
      .eps = p.attrs.eps,
      .num_slots = p.k.data ? p.cache_k.shape[0] * p.cache_k.shape[1] : 0,
      .live = {p.rows, first.rows()},
  };
  if (args.live.capacity == 0) return;
  const int heads = args.q_heads + 2 * args.kv_heads;
  const dim3 grid(static_cast<unsigned>(args.live.capacity),
                  static_cast<unsigned>(ceil_div(heads, config.rows * config.heads_per_row)));
  const dim3 block(config.lanes, config.rows);
  const auto run = [&]<int V, int kUnits, int kHeads, bool kNorm>() {
    launch_kernel(context, rope_append_kernel<X, Y, C, V, kUnits, kHeads, kNorm>, grid, block, 0,
                  rows_of<const X>(p.q), rows_of<const X>(p.k), rows_of<const X>(p.v),
                  rows_of<Y>(p.y), rows_of<C>(p.cache_k), rows_of<C>(p.cache_v), args);
  };
  const bool norm = p.q_norm.data || p.k_norm.data;
  if (config.vector == 1) return run.template operator()<1, kMaxRopeHeadDim / 64, 1, true>();
  if (config.heads_per_row == 1) {
    return norm ? run.template operator()<8, 1, 1, true>()
                : run.template operator()<8, 1, 1, false>();
  }
  norm ? run.template operator()<8, 1, 4, true>() : run.template operator()<8, 1, 4, false>();
}

template <class X, class Y>
void launch_any(const RopeAppendParams& p, const RopeConfig& config, const LaunchContext& context) {
  if (!p.k.data || p.cache_k.dtype == DType::bf16) {
    return launch<X, Y, __nv_bfloat16>(p, config, context);
  }
  p.cache_k.dtype == DType::f16 ? launch<X, Y, __half>(p, config, context)
                                : launch<X, Y, float>(p, config, context);
}

void require_heads(std::string_view operand, const TensorView& view, int64_t head_dim) {
  if (view.cols() % head_dim == 0) return;
  fail(ErrorCode::kInvalidArgument, "rope_append: {} is {}, no whole heads of {}", operand,
       to_string(view.shape), head_dim);
}

void require_cache(std::string_view operand, const TensorView& cache, const RopeAppendParams& p) {
  require_matrix("rope_append", operand, cache, {p.cache_k.dtype});
  const int64_t D = p.attrs.rope.head_dim;
  if (cache.shape.rank() != 4 || !(cache.shape == p.cache_k.shape) || cache.shape[3] != D ||
      cache.shape[2] * D != p.k.cols()) {
    fail(ErrorCode::kInvalidArgument, "rope_append: {} is {}, not pages of {} heads of {}", operand,
         to_string(cache.shape), p.k.cols() / D, D);
  }
}

}  // namespace

RopeDesc rope_append_desc(const RopeAppendParams& p) {
  constexpr std::string_view kOp = "rope_append";
  const ops::RopeAttrs& rope = p.attrs.rope;
  const int64_t D = rope.head_dim;
  if (D < 1 || D > kMaxRopeHeadDim) {
    fail(ErrorCode::kUnsupported, "rope_append: head_dim {}, at most {}", D, kMaxRopeHeadDim);
  }
  RopeDesc desc = {.head_dim = static_cast<int>(D),
                   .rotary_dim = static_cast<int>(rope.rotary_dim)};
  const TensorView& first = p.q.data ? p.q : p.k;
  require_matrix(kOp, p.q.data ? "q" : "k", first, {DType::f32, DType::bf16});
  const Shape tokens = {first.shape[0]};
  desc.tokens = first.shape[0];
  if (p.q.data) {
    require_heads("q", p.q, D);
    require_matrix(kOp, "y", p.y, {DType::bf16, p.q.dtype});
    require_shape(kOp, "y", p.y, p.q.shape);
    desc.heads += p.q.cols() / D;
  }
  if (p.k.data) {
    require_matrix(kOp, "k", p.k, {first.dtype});
    require_matrix(kOp, "v", p.v, {first.dtype});
    require_heads("k", p.k, D);
    require_shape(kOp, "k", p.k, {first.shape[0], p.k.cols()});
    require_shape(kOp, "v", p.v, p.k.shape);
    if (p.slots.data) {
      require_matrix(kOp, "slots", p.slots, {DType::i32});
      require_shape(kOp, "slots", p.slots, tokens);
    }
    require_matrix(kOp, "cache k", p.cache_k, {DType::f32, DType::f16, DType::bf16});
    require_cache("cache k", p.cache_k, p);
    require_cache("cache v", p.cache_v, p);
    desc.heads += 2 * (p.k.cols() / D);
  }
  if (rope.rotary_dim > 0) {
    require_matrix(kOp, "positions", p.positions, {DType::i32});
    require_shape(kOp, "positions", p.positions, tokens);
    if (!p.turns) fail(ErrorCode::kInvalidArgument, "rope_append: no turns");
  }
  for (const TensorView& norm : {p.q_norm, p.k_norm}) {
    if (!norm.data) continue;
    require_matrix(kOp, "norm", norm, {DType::f32, DType::f16, DType::bf16});
    require_shape(kOp, "norm", norm, {D});
  }
  const auto norm_aligned = [](const TensorView& norm) {
    return reinterpret_cast<uintptr_t>(norm.data) % 16 == 0;
  };
  desc.aligned = rows_aligned({p.q, p.k, p.v, p.y, p.cache_k, p.cache_v}, 8) &&
                 norm_aligned(p.q_norm) && norm_aligned(p.k_norm);
  return desc;
}

void rope_append(const RopeAppendParams& p, const RopeConfig& config, LaunchContext context) {
  const RopeDesc desc = rope_append_desc(p);
  if (desc.heads == 0) return;
  const RopeConfig widest = choose_rope(desc, kNumSms);
  const int threads = config.lanes * config.rows;
  const bool heads_fit =
      config.heads_per_row == 1 || (config.heads_per_row == 4 && config.vector == 8);
  if (config.vector > widest.vector || config.lanes > 32 || config.rows < 1 || !heads_fit ||
      2 * config.vector * config.units * config.lanes < desc.head_dim || threads > 256 ||
      threads % 32 != 0) {
    fail(ErrorCode::kInvalidArgument, "rope_append: {} for {} heads of {}", to_string(config),
         desc.heads, desc.head_dim);
  }
  if (!p.q.data) {
    return p.k.dtype == DType::f32 ? launch_any<float, float>(p, config, context)
                                   : launch_any<__nv_bfloat16, __nv_bfloat16>(p, config, context);
  }
  if (p.q.dtype == DType::bf16) return launch_any<__nv_bfloat16, __nv_bfloat16>(p, config, context);
  p.y.dtype == DType::f32 ? launch_any<float, float>(p, config, context)
                          : launch_any<float, __nv_bfloat16>(p, config, context);
}

}  // namespace braid::cuda
