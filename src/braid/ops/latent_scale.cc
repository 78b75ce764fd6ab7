#include "braid/ops/latent_scale.h"

#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<LatentScaleAttrs>();
  const int64_t frame = a.height * a.width, latents = a.latent_height * a.latent_width;
  BRAID_CHECK(in.size() == 3 && frame > 0 && latents > 0, "{} inputs", in.size());
  require_rank("latent_scale", "x", in[0], 2);
  require_float("latent_scale", "x", in[0]);
  for (size_t i : {1u, 2u}) {
    const std::string_view operand = i == 1 ? "scale" : "shift";
    require_rank("latent_scale", operand, in[i], 2);
    require_float("latent_scale", operand, in[i]);
    require_dtype("latent_scale", operand, in[i], in[1].dtype);
    require_dim("latent_scale", operand, in[i], 0, in[1].shape[0]);
    require_dim("latent_scale", operand, in[i], 1, in[0].shape[1]);
  }
  if (in[0].shape[0] % frame != 0 || in[1].shape[0] % latents != 0) {
    fail(ErrorCode::kInvalidArgument,
         "latent_scale: x is {} and scale {}, no whole frames of {}x{} and {}x{}", to_string(in[0]),
         to_string(in[1]), a.height, a.width, a.latent_height, a.latent_width);
  }
  const int64_t frames = in[0].shape[0] / frame, latent_frames = in[1].shape[0] / latents;
  if (latent_frames < 1 || (latent_frames == 1 && frames > 1 && frames % 2 == 1)) {
    fail(ErrorCode::kInvalidArgument, "latent_scale: {} frames of latents for {} frames",
         latent_frames, frames);
  }
  return {in[0]};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 6);
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(3, 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<LatentScaleAttrs>();
  const int64_t frames = call.in[0].shape[0] / (a.height * a.width);
  const int64_t latent_frames = call.in[1].shape[0] / (a.latent_height * a.latent_width);
  for (int64_t pixel = 0; pixel < call.in[0].shape[0]; ++pixel) {
    std::vector<float> x = load_row(call.in[0], pixel);
    const int64_t at = a.source(pixel, frames, latent_frames);
    const std::vector<float> scale = load_row(call.in[1], at), shift = load_row(call.in[2], at);
    for (size_t c = 0; c < x.size(); ++c) {
      x[c] = x[c] * scale[c] + shift[c];
      if (a.silu) x[c] /= 1 + std::exp(-x[c]);
    }
    store_row(call.out[0], pixel, x);
  }
}

}  // namespace

int64_t LatentScaleAttrs::source(int64_t pixel, int64_t frames, int64_t latent_frames) const {
  const int64_t column = pixel % width, row = pixel / width % height;
  const int64_t t = pixel / width / height;
  const bool apart = frames > 1 && frames % 2 == 1;  // the first frame
  const int64_t rest = apart ? 1 : 0;
  const int64_t from =
      t < rest ? 0 : rest + ((t - rest) * (latent_frames - rest) / (frames - rest));
  return (((from * latent_height) + (row * latent_height / height)) * latent_width) +
         (column * latent_width / width);
}

const OpDef kLatentScale = {.kind = "latent_scale",
                            .infer = infer,
                            .mutated_inputs = {},
                            .cost = cost,
                            .shard = shard,
                            .reference = reference};

ValueId latent_scale(Builder& b, ValueId x, ValueId scale, ValueId shift,
                     const LatentScaleAttrs& attrs) {
  return b.op1(kLatentScale, Attrs::of(attrs), {x, scale, shift});
}

}  // namespace braid::ops
