#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// y = silu(x * scale + shift) over the pixels of a video, where scale and shift have fewer pixels
// and frames: each pixel takes the nearest. Of an odd number of frames above 1 the first takes the
// first of the latents, and the others are spread over the others: two latents at least.
// Inputs: x [T * H * W, C] of any float, scale and shift [Tz * h * w, C] of any float, both alike.
// Output: as x.
struct LatentScaleAttrs {
  int64_t height = 0;         // H
  int64_t width = 0;          // W
  int64_t latent_height = 0;  // h
  int64_t latent_width = 0;   // w
  bool silu = false;
  bool operator==(const LatentScaleAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("height", height);
    f("width", width);
    f("latent_height", latent_height);
    f("latent_width", latent_width);
    if (silu) f("silu", silu);
  }

  // The row in scale and shift for a pixel of x with `frames` frames, out of `latent_frames`.
  int64_t source(int64_t pixel, int64_t frames, int64_t latent_frames) const;
};

extern const OpDef kLatentScale;
ValueId latent_scale(Builder& b, ValueId x, ValueId scale, ValueId shift,
                     const LatentScaleAttrs& attrs);

}  // namespace braid::ops
