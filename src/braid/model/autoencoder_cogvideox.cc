#include "braid/model/autoencoder_cogvideox.h"

#include <bit>
#include <map>
#include <string>

#include "braid/model/component_config.h"
#include "braid/ops/concat.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/latent_scale.h"

namespace braid {
namespace {

constexpr std::string_view kComponent = "the video autoencoder";
constexpr float kEps = 1e-6f;

// Frames between two ops: rows of pixels, and how many.
struct Frames {
  ValueId x = kNoValue;  // [frames * height * width, channels]
  int64_t frames = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
};

class Decoder {
 public:
  Decoder(const AutoencoderCogVideoXConfig& config, const VideoLatentSize& size,
          const WeightDtype& dtype_of, DType activations)
      : b_("autoencoder_cogvideox_decode", {}),
        c_(config),
        s_(size),
        dtype_of_(dtype_of),
        dtype_(activations) {}

  Program run() {
    std::vector<ValueId> outputs;
    const std::vector<int64_t> chunks = cogvideox_chunks(s_.frames);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto scope = b_.scope(fmt::format("chunk.{}", i));
      latents_ = {.frames = chunks[i],
                  .height = s_.height,
                  .width = s_.width,
                  .channels = c_.latent_channels};
      latents_.x = b_.input(fmt::format("latents.{}", i),
                            {dtype_, {chunks[i] * s_.height * s_.width, c_.latent_channels}});
      last_ = i + 1 == chunks.size();
      outputs.push_back(chunk(latents_).x);
    }
    return b_.finish(outputs);
  }

 private:
  Frames chunk(Frames p) {
    p = conv("decoder.conv_in", p, c_.channels.back());
    for (int i = 0; i < 2; ++i) {
      p = resnet(fmt::format("decoder.mid_block.resnets.{}", i), p, p.channels);
    }
    for (size_t i = 0; i < c_.channels.size(); ++i) {
      const int64_t channels = c_.channels[c_.channels.size() - 1 - i];
      const std::string level = fmt::format("decoder.up_blocks.{}", i);
      for (int64_t j = 0; j <= c_.resnets; ++j) {
        p = resnet(fmt::format("{}.resnets.{}", level, j), p, channels);
      }
      if (i + 1 < c_.channels.size()) {
        p = upsample(level + ".upsamplers.0.conv", p, static_cast<int64_t>(i) < c_.time_levels);
      }
    }
    p.x = norm("decoder.norm_out", p);
    return conv("decoder.conv_out", p, 3);
  }

  // A causal 3x3x3 convolution; the last two input frames are kept for the next chunk.
  Frames conv(const std::string& name, const Frames& p, int64_t out, ValueId residual = kNoValue) {
    const auto before = before_.try_emplace(name, kNoValue).first;
    Frames y = p;
    y.channels = out;
    y.x = ops::conv3d(b_,
                      {.x = p.x,
                       .w = weight(name + ".conv.weight", {out, p.channels, 3, 3, 3}),
                       .bias = weight(name + ".conv.bias", {out}),
                       .residual = residual,
                       .before = before->second},
                      {.height = p.height, .width = p.width, .padding = 1});
    if (last_) return y;
    const int64_t frame = p.height * p.width;
    before->second =
        p.frames == 2
            ? p.x
            : ops::take_rows(b_, p.x, {.begin = (p.frames - 2) * frame, .rows = 2 * frame});
    return y;
  }

  // Of single pixels.
  ValueId pointwise(const std::string& name, const Frames& p, int64_t out) {
    return ops::conv3d(b_,
                       {.x = p.x,
                        .w = weight(name + ".weight", {out, p.channels, 1, 1, 1}),
                        .bias = weight(name + ".bias", {out})},
                       {.height = p.height, .width = p.width});
  }

  // A group norm, then SiLU over the result, scaled and shifted by convolutions over the latents.
  // The convolutions work on single pixels, so they run before the latents are spread.
  ValueId norm(const std::string& name, const Frames& p) {
    const ValueId x = ops::group_norm(b_, p.x,
                                      {weight(name + ".norm_layer.weight", {p.channels}),
                                       weight(name + ".norm_layer.bias", {p.channels})},
                                      {.groups = c_.groups, .eps = kEps});
    return ops::latent_scale(b_, x, pointwise(name + ".conv_y.conv", latents_, p.channels),
                             pointwise(name + ".conv_b.conv", latents_, p.channels),
                             {.height = p.height,
                              .width = p.width,
                              .latent_height = latents_.height,
                              .latent_width = latents_.width,
                              .silu = true});
  }

  Frames resnet(const std::string& name, const Frames& p, int64_t out) {
    const auto scope = b_.scope(name);
    const ValueId residual = out == p.channels ? p.x : pointwise(name + ".conv_shortcut", p, out);
    Frames h = p;
    h.x = norm(name + ".norm1", h);
    h = conv(name + ".conv1", h, out);
    h.x = norm(name + ".norm2", h);
    return conv(name + ".conv2", h, out, residual);
  }

  // Twice the rows and columns, by a convolution of each frame; with `time` each result twice, but
  // for the first of an odd number. conv3d could repeat frames itself, and would sum each twice.
  Frames upsample(const std::string& name, const Frames& p, bool time) {
    Frames y = p;
    y.height *= 2;
    y.width *= 2;
    y.x = ops::conv2d(
        b_,
        {.x = p.x,
         .w = weight(name + ".weight", {p.channels, p.channels, 3, 3}),
         .bias = weight(name + ".bias", {p.channels})},
        {.batch = p.frames, .height = p.height, .width = p.width, .padding = 1, .upsample = 2});
    if (!time || p.frames == 1) return y;
    if (p.frames % 2 == 0) {
      y.x = ops::concat_rows(b_, {y.x, y.x}, p.frames);
      y.frames = 2 * p.frames;
      return y;
    }
    const int64_t frame = y.height * y.width, rest = p.frames - 1;
    const ValueId first = ops::take_rows(b_, y.x, {.begin = 0, .rows = frame});
    const ValueId others = ops::take_rows(b_, y.x, {.begin = frame, .rows = rest * frame});
    const ValueId twice = ops::concat_rows(b_, {others, others}, rest);
    y.x = ops::concat_rows(b_, {first, twice}, 1);
    y.frames = 1 + (2 * rest);
    return y;
  }

  ValueId weight(const std::string& name, const Shape& shape) {
    return b_.weight(name, {dtype_of_(name), shape});
  }

  Builder b_;
  const AutoencoderCogVideoXConfig& c_;
  const VideoLatentSize& s_;
  const WeightDtype& dtype_of_;
  const DType dtype_;
  Frames latents_;                         // of the chunk at hand
  bool last_ = false;                      // no chunk comes behind it
  std::map<std::string, ValueId> before_;  // each convolution's input in the chunk before
};

}  // namespace

AutoencoderCogVideoXConfig read_autoencoder_cogvideox_config(const JsonObject& config) {
  require_text(config, kComponent, "_class_name", {"AutoencoderKLCogVideoX"});
  // From "in_channels" on: about the encoder, training and other pipelines.
  require_known_fields(config, kComponent, ConfigWriter::diffusers,
                       {"latent_channels",
                        "out_channels",
                        "block_out_channels",
                        "layers_per_block",
                        "norm_num_groups",
                        "norm_eps",
                        "temporal_compression_ratio",
                        "sample_height",
                        "sample_width",
                        "scaling_factor",
                        "act_fn",
                        "use_post_quant_conv",
                        "up_block_types",
                        "in_channels",
                        "down_block_types",
                        "use_quant_conv",
                        "force_upcast",
                        "latents_mean",
                        "mid_block_add_attention",
                        "sample_size",
                        "shift_factor",
                        "latents_std",
                        "shift_factor",
                        "invert_scale_latents"});
  const auto count = [&](std::string_view key, int64_t otherwise) {
    return read_count(config, kComponent, key, otherwise);
  };
  const int64_t time = count("temporal_compression_ratio", 4);
  if (!std::has_single_bit(static_cast<uint64_t>(time))) {
    fail(ErrorCode::kUnsupported,
         "{}: temporal_compression_ratio is {}, a power of two is supported", kComponent, time);
  }
  const AutoencoderCogVideoXConfig c{
      .latent_channels = count("latent_channels", 16),
      .channels = config.get_or<std::vector<int64_t>>("block_out_channels", {128, 256, 256, 512}),
      .resnets = count("layers_per_block", 3),
      .groups = count("norm_num_groups", 32),
      .time_levels = std::countr_zero(static_cast<uint64_t>(time)),
      .sample_height = count("sample_height", 480),
      .sample_width = count("sample_width", 720),
      .scaling_factor = read_positive(config, kComponent, "scaling_factor", 1.15258426f)};
  require_text(config, kComponent, "act_fn", {"silu"});
  if (const float eps = read_positive(config, kComponent, "norm_eps", kEps); eps != kEps) {
    fail(ErrorCode::kUnsupported, "{}: norm_eps is {}, {} is supported", kComponent, eps, kEps);
  }
  for (const auto& type : config.get_or<std::vector<std::string>>("up_block_types", {})) {
    if (type == "CogVideoXUpBlock3D") continue;
    fail(ErrorCode::kUnsupported, "{}: up_block_types has '{}', CogVideoXUpBlock3D is supported",
         kComponent, type);
  }
  if (config.get_or<bool>("use_post_quant_conv", false)) {
    fail(ErrorCode::kUnsupported, "{}: use_post_quant_conv is true, false is supported",
         kComponent);
  }
  if (const int64_t out = count("out_channels", 3); out != 3) {
    fail(ErrorCode::kUnsupported, "{}: out_channels is {}, 3 is supported", kComponent, out);
  }
  if (c.channels.empty() || c.channels.size() > 8) {
    fail(ErrorCode::kUnsupported, "{}: block_out_channels has {} levels, 1 to 8 are supported",
         kComponent, c.channels.size());
  }
  for (const int64_t channels : c.channels) {
    if (channels >= 1 && channels % c.groups == 0) continue;
    fail(ErrorCode::kUnsupported,
         "{}: block_out_channels has {}, which norm_num_groups, {}, does not divide", kComponent,
         channels, c.groups);
  }
  return c;
}

std::vector<int64_t> cogvideox_chunks(int64_t frames) {
  std::vector<int64_t> chunks;
  if (frames < 2) return {frames};
  for (int64_t left = frames; left > 0; left -= chunks.back()) {
    chunks.push_back(left == frames && frames % 2 == 1 ? 3 : 2);
  }
  return chunks;
}

Program autoencoder_cogvideox_decode(const AutoencoderCogVideoXConfig& config,
                                     const VideoLatentSize& size, const WeightDtype& dtype_of,
                                     DType activations) {
  if (size.frames < 1) {
    fail(ErrorCode::kInvalidArgument, "{}: {} latent frames, at least 1 is wanted", kComponent,
         size.frames);
  }
  return Decoder(config, size, dtype_of, activations).run();
}

bool autoencoder_cogvideox_ignores(std::string_view tensor) {
  return tensor.starts_with("encoder.") || tensor.starts_with("quant_conv.");
}

}  // namespace braid
