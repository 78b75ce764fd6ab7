#include "braid/kernels/cpu/pointwise/rope.h"

#include "braid/kernels/cpu/pointwise/convert_simd.h"
#include "braid/kernels/cpu/pointwise/norm_simd.h"

namespace braid::cpu::BRAID_ISA {
namespace {

// cos and sin of a token, in the form of the rotation: y = x * c + partner(x) * s.
struct Angles {
  int64_t token = -1;
  alignas(64) float c[kMaxRopeHeadDim];
  alignas(64) float s[kMaxRopeHeadDim];
};

// Turns are split as quarter / 4 + rest with |rest| <= 1/8 in f64, good to 1e-10 at
// position 10^6; minimax polynomials of sin and cos (2 pi rest) then stay below 1e-7.
BRAID_INLINE void angles_of(const RopeSpec& rope, int64_t token, Angles& angles) {
  if (angles.token == token) return;
  angles.token = token;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  constexpr double kTurnsPerRadian = 0.15915494309189535;
  const int64_t half = rope.rot / 2;
  const double position = rope.positions[token];
  float cosine[kMaxRopeHeadDim / 2];
  float sine[kMaxRopeHeadDim / 2];
  for (int64_t i = 0; i < half; ++i) {
    const double turns = position * rope.inv_freq[i] * kTurnsPerRadian;
    const double shifted = turns * 4 + kRound;
    const double rest = turns - (shifted - kRound) * 0.25;
    int64_t quarter;
    std::memcpy(&quarter, &shifted, sizeof(quarter));
    const float f = static_cast<float>(rest);
    const float u = f * f;
    const float sin_f =
        f * (6.2831853f + u * (-41.341702f + u * (81.605205f + u * (-76.69787f + u * 41.47295f))));
    const float cos_f =
        1.0f + u * (-19.739209f + u * (64.939316f + u * (-85.44285f + u * 59.220407f)));
    const bool swap = quarter & 1;
    const float sin_q = swap ? cos_f : sin_f;
    const float cos_q = swap ? sin_f : cos_f;
    sine[i] = (quarter & 2) ? -sin_q : sin_q;
    cosine[i] = ((quarter + 1) & 2) ? -cos_q : cos_q;
  }
  for (int64_t i = 0; i < half; ++i) {
    const float c = cosine[i] * rope.mscale;
    const float s = sine[i] * rope.mscale;
    const int64_t a = rope.pairing == ops::RopePairing::half ? i : 2 * i;
    const int64_t b = rope.pairing == ops::RopePairing::half ? i + half : 2 * i + 1;
    angles.c[a] = c;
    angles.c[b] = c;
    angles.s[a] = -s;
    angles.s[b] = s;
  }
}

BRAID_INLINE Vec swap_pairs(Vec v) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif defined(__AVX2__)
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#else
  return __builtin_shufflevector(v, v, 1, 0, 3, 2);
#endif
}

// x and y: one head, f32, y may be x.
BRAID_INLINE void turn(const RopeSpec& rope, const Angles& angles, const float* x, float* y) {
  const int64_t half = rope.rot / 2;
  if (rope.pairing == ops::RopePairing::half) {
    for (int64_t i = 0; i < half; i += kLanes) {
      const int n = static_cast<int>(half - i < kLanes ? half - i : kLanes);
      const Vec a = load_n(x + i, n);
      const Vec b = load_n(x + half + i, n);
      const Vec c = load_n(angles.c + i, n);
      const Vec s = load_n(angles.s + half + i, n);
      store_n(y + i, fma(a, c, -(b * s)), n);
      store_n(y + half + i, fma(b, c, a * s), n);
    }
  } else {
    for (int64_t i = 0; i < rope.rot; i += kLanes) {
      const int n = static_cast<int>(rope.rot - i < kLanes ? rope.rot - i : kLanes);
      const Vec a = load_n(x + i, n);
      store_n(y + i, fma(a, load_n(angles.c + i, n), swap_pairs(a) * load_n(angles.s + i, n)), n);
    }
  }
  if (y != x) std::memcpy(y + rope.rot, x + rope.rot, (rope.head_dim - rope.rot) * sizeof(float));
}

BRAID_INLINE void norm_and_turn(const RopeSpec& rope, const RopeHeads& in, const Angles& angles,
                                int64_t head, float* y) {
  const float* x = in.x + angles.token * in.x_stride + head * rope.head_dim;
  if (in.norm_w) {
    rms_norm_group(x, in.norm_w, y, rope.head_dim, in.norm_eps);
    x = y;
  }
  turn(rope, angles, x, y);
}

}  // namespace

void rope_units(const RopeParams& p, Range units) {
  Angles angles;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t head = unit % p.in.heads;
    angles_of(p.rope, unit / p.in.heads, angles);
    norm_and_turn(p.rope, p.in, angles, head,
                  p.out + angles.token * p.out_stride + head * p.rope.head_dim);
  }
}

void rope_append_units(const RopeAppendParams& p, Range units) {
  const int64_t D = p.rope.head_dim;
  const int64_t per_token = p.q.heads + 2 * p.k.heads;
  Angles angles;
  alignas(64) float turned[kMaxRopeHeadDim];
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t t = unit / per_token;
    int64_t head = unit % per_token;
    if (head < p.q.heads) {
      angles_of(p.rope, t, angles);
      norm_and_turn(p.rope, p.q, angles, head, p.q_out + t * p.q_out_stride + head * D);
      continue;
    }
    head -= p.q.heads;
    const int64_t slot = p.slots[t];
    if (slot < 0) continue;
    if (head < p.k.heads) {
      angles_of(p.rope, t, angles);
      norm_and_turn(p.rope, p.k, angles, head, turned);
      convert_row(turned, p.cache.k, p.cache.dtype, (slot * p.k.heads + head) * D, D);
    } else {
      head -= p.k.heads;
      convert_row(p.v + t * p.v_stride + head * D, p.cache.v, p.cache.dtype,
                  (slot * p.k.heads + head) * D, D);
    }
  }
}

}  // namespace braid::cpu::BRAID_ISA
