#include "braid/model/autoencoder_kl.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "braid/model/component_config.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"

namespace braid {
namespace {

constexpr std::string_view kComponent = "the autoencoder";
constexpr float kEps = 1e-6f;

// Pictures between two ops: rows of pixels, and how many.
struct Pixels {
  ValueId x = kNoValue;  // [B * height * width, channels]
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
};

class Decoder {
 public:
  Decoder(const AutoencoderKlConfig& config, const LatentSize& size, const WeightDtype& dtype_of,
          DType activations)
      : b_("autoencoder_kl_decode", {}),
        c_(config),
        s_(size),
        dtype_of_(dtype_of),
        dtype_(activations) {}

  Program run() {
    Pixels p{.height = s_.height, .width = s_.width, .channels = c_.latent_channels};
    p.x = b_.input("latents", {dtype_, {s_.batch * p.height * p.width, p.channels}});
    if (c_.post_quant) p = conv("post_quant_conv", p, {.out = p.channels, .kernel = 1});
    p = conv("decoder.conv_in", p, {.out = c_.channels.back()});
    p = resnet("decoder.mid_block.resnets.0", p, p.channels);
    p = attention("decoder.mid_block.attentions.0", p);
    p = resnet("decoder.mid_block.resnets.1", p, p.channels);
    for (size_t i = 0; i < c_.channels.size(); ++i) {
      const int64_t channels = c_.channels[c_.channels.size() - 1 - i];
      const std::string level = fmt::format("decoder.up_blocks.{}", i);
      for (int64_t j = 0; j <= c_.resnets; ++j) {
        p = resnet(fmt::format("{}.resnets.{}", level, j), p, channels);
      }
      if (i + 1 < c_.channels.size()) {
        p = conv(level + ".upsamplers.0.conv", p, {.out = channels, .upsample = 2});
      }
    }
    p.x = norm("decoder.conv_norm_out", p, true);
    return b_.finish({conv("decoder.conv_out", p, {.out = c_.out_channels}).x});
  }

 private:
  struct Conv {
    int64_t out = 0;
    int64_t kernel = 3;
    int64_t upsample = 1;
    ValueId residual = kNoValue;
  };
  Pixels conv(const std::string& name, const Pixels& p, const Conv& conv) {
    const ValueId w = weight(name + ".weight", {conv.out, p.channels, conv.kernel, conv.kernel});
    const ValueId bias = weight(name + ".bias", {conv.out});
    return {.x = ops::conv2d(b_, {.x = p.x, .w = w, .bias = bias, .residual = conv.residual},
                             {.batch = s_.batch,
                              .height = p.height,
                              .width = p.width,
                              .padding = conv.kernel / 2,
                              .upsample = conv.upsample}),
            .height = p.height * conv.upsample,
            .width = p.width * conv.upsample,
            .channels = conv.out};
  }

  Pixels resnet(const std::string& name, const Pixels& p, int64_t out) {
    const auto scope = b_.scope(name);
    ValueId residual = p.x;
    if (out != p.channels) residual = conv(name + ".conv_shortcut", p, {.out = out, .kernel = 1}).x;
    Pixels h = p;
    h.x = norm(name + ".norm1", h, true);
    h = conv(name + ".conv1", h, {.out = out});
    h.x = norm(name + ".norm2", h, true);
    return conv(name + ".conv2", h, {.out = out, .residual = residual});
  }

  // A single head over all pixels in a picture.
  Pixels attention(const std::string& name, const Pixels& p) {
    const auto scope = b_.scope(name);
    const int64_t C = p.channels;
    ValueId h = norm(name + ".group_norm", p, false);
    const auto qkv = ops::linears(
        b_, h, {weights(name + ".to_q", C), weights(name + ".to_k", C), weights(name + ".to_v", C)},
        dtype_);
    h = ops::dense_attention(
        b_, {.q = {qkv[0]}, .k = {qkv[1]}, .v = {qkv[2]}},
        {.head_dim = C, .batch = s_.batch, .scale = 1 / std::sqrt(static_cast<float>(C))})[0];
    Pixels out = p;
    out.x = ops::add(b_, ops::linear(b_, h, weights(name + ".to_out.0", C), dtype_), p.x);
    return out;
  }

  ValueId norm(const std::string& name, const Pixels& p, bool silu) {
    return ops::group_norm(
        b_, p.x, {weight(name + ".weight", {p.channels}), weight(name + ".bias", {p.channels})},
        {.batch = s_.batch, .groups = c_.groups, .eps = kEps, .silu = silu});
  }
  ops::LinearWeights weights(const std::string& name, int64_t C) {
    return {weight(name + ".weight", {C, C}), weight(name + ".bias", {C})};
  }
  ValueId weight(const std::string& name, const Shape& shape) {
    return b_.weight(name, {dtype_of_(name), shape});
  }

  Builder b_;
  const AutoencoderKlConfig& c_;
  const LatentSize& s_;
  const WeightDtype& dtype_of_;
  const DType dtype_;  // of activations
};

}  // namespace

AutoencoderKlConfig read_autoencoder_kl_config(const JsonObject& config) {
  require_text(config, kComponent, "_class_name", {"AutoencoderKL"});
  // From "in_channels" on: about the encoder, training and other pipelines.
  require_known_fields(
      config, kComponent, ConfigWriter::diffusers,
      {"latent_channels", "out_channels", "block_out_channels", "layers_per_block",
       "norm_num_groups", "sample_size", "use_post_quant_conv", "scaling_factor", "shift_factor",
       "act_fn", "mid_block_add_attention", "up_block_types", "in_channels", "down_block_types",
       "use_quant_conv", "force_upcast", "latents_mean", "latents_std"});
  const auto count = [&](std::string_view key, int64_t otherwise) {
    return read_count(config, kComponent, key, otherwise);
  };
  const AutoencoderKlConfig c{
      .latent_channels = count("latent_channels", 4),
      .out_channels = count("out_channels", 3),
      .channels = config.get_or<std::vector<int64_t>>("block_out_channels", {64}),
      .resnets = count("layers_per_block", 1),
      .groups = count("norm_num_groups", 32),
      .sample_size = count("sample_size", 32),
      .post_quant = config.get_or<bool>("use_post_quant_conv", true),
      .scaling_factor = read_positive(config, kComponent, "scaling_factor", 0.18215f),
      .shift_factor = static_cast<float>(config.get_or<double>("shift_factor", 0))};
  require_text(config, kComponent, "act_fn", {"silu"});
  if (c.out_channels != 3) {
    fail(ErrorCode::kUnsupported, "{}: out_channels is {}, 3 is supported", kComponent,
         c.out_channels);
  }
  if (!config.get_or<bool>("mid_block_add_attention", true)) {
    fail(ErrorCode::kUnsupported, "{}: mid_block_add_attention is false, true is supported",
         kComponent);
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
  for (const auto& type : config.get_or<std::vector<std::string>>("up_block_types", {})) {
    if (type == "UpDecoderBlock2D") continue;
    fail(ErrorCode::kUnsupported, "{}: up_block_types has '{}', UpDecoderBlock2D is supported",
         kComponent, type);
  }
  return c;
}

Program autoencoder_kl_decode(const AutoencoderKlConfig& config, const LatentSize& size,
                              const WeightDtype& dtype_of, DType activations) {
  return Decoder(config, size, dtype_of, activations).run();
}

bool autoencoder_kl_ignores(std::string_view tensor) {
  return tensor.starts_with("encoder.") || tensor.starts_with("quant_conv.");
}

}  // namespace braid
