#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// How the two halves of a rotated pair lie in a head: (2i, 2i + 1) or (i, i + rotary_dim / 2).
enum class RopePairing : uint8_t { interleaved, half };
enum class RopeScaling : uint8_t { none, linear, llama3, yarn };
std::string_view to_string(RopePairing pairing);
std::string_view to_string(RopeScaling scaling);

// Rotates the first `rotary_dim` columns of each head by position * frequency.
struct RopeAttrs {
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
  RopePairing pairing = RopePairing::half;
  float theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  float factor = 1;
  int64_t original_context = 0;  // llama3, yarn
  float low_freq_factor = 1;     // llama3
  float high_freq_factor = 4;    // llama3
  float beta_fast = 32;          // yarn
  float beta_slow = 1;           // yarn
  float attention_factor = 1;    // multiplies sin and cos
  bool truncate = true;          // yarn: round the ramp's ends to whole dimensions
  bool operator==(const RopeAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("head_dim", head_dim);
    f("rotary_dim", rotary_dim);
    f("pairing", to_string(pairing));
    f("theta", theta);
    if (scaling != RopeScaling::none) {
      f("scaling", to_string(scaling));
      f("factor", factor);
      f("original_context", original_context);
    }
    if (scaling == RopeScaling::llama3) {
      f("low_freq_factor", low_freq_factor);
      f("high_freq_factor", high_freq_factor);
    } else if (scaling == RopeScaling::yarn) {
      f("beta_fast", beta_fast);
      f("beta_slow", beta_slow);
      f("truncate", truncate);
    }
    if (scaling == RopeScaling::yarn || attention_factor != 1)
      f("attention_factor", attention_factor);
  }
};

// Radians per position of each pair: [rotary_dim / 2], divided by `factors` [rotary_dim / 2] unless
// null (the rope_freqs tensor of GGUF). Computed in f64.
std::vector<double> rope_frequencies(const RopeAttrs& attrs, const float* factors);

// y = rope(x, positions): any float [T, H * D], i32 [T], optional f32 factors [rotary_dim / 2].
extern const OpDef kRope;
ValueId rope(Builder& b, ValueId x, ValueId positions, ValueId factors, const RopeAttrs& attrs);

}  // namespace braid::ops
