#include "braid/model/flux.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "braid/model/component_config.h"
#include "braid/model/transformer_writer.h"
#include "braid/ops/concat.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope_table.h"
#include "braid/ops/timestep.h"
#include "braid/ops/unary.h"

namespace braid {
namespace {

constexpr float kEps = 1e-6f;
constexpr int64_t kTimestepDim = 256;

// Shared by the three Programs.
class Writer : protected TransformerWriter {
 public:
  Writer(std::string name, const FluxConfig& config, const WeightDtype& dtype_of,
         DType activations = DType::f32)
      : TransformerWriter(std::move(name), dtype_of, activations), c_(config), C_(config.width()) {}

 protected:
  ValueId mlp(const std::string& first, const std::string& second, ValueId x, int64_t hidden,
              ops::UnaryFunction function) {
    return linear(second, ops::unary(b_, linear(first, x, hidden), function), C_);
  }

  const FluxConfig& c_;
  const int64_t C_;
};

class Modulation : Writer {
 public:
  using Writer::Writer;

  Program run(int64_t n) {
    ValueId sum = sinusoid("timestep", n);
    if (c_.guidance) sum = ops::add(b_, sum, sinusoid("guidance", n));
    const ValueId pooled = f32_input("pooled", n, c_.pooled_dim);
    sum = ops::add(b_, sum, embed("time_text_embed.text_embedder", pooled));
    const ValueId x = ops::unary(b_, sum, ops::UnaryFunction::silu);
    std::vector<ValueId> outputs;
    for (int64_t i = 0; i < c_.blocks; ++i) {
      const std::string block = fmt::format("transformer_blocks.{}", i);
      outputs.push_back(linear(block + ".norm1.linear", x, 6 * C_, DType::f32));
      outputs.push_back(linear(block + ".norm1_context.linear", x, 6 * C_, DType::f32));
    }
    for (int64_t i = 0; i < c_.single_blocks; ++i) {
      outputs.push_back(linear(fmt::format("single_transformer_blocks.{}.norm.linear", i), x,
                               3 * C_, DType::f32));
    }
    outputs.push_back(linear("norm_out.linear", x, 2 * C_, DType::f32));
    return b_.finish(outputs);
  }

 private:
  ValueId sinusoid(const std::string& name, int64_t n) {
    const ValueId t = b_.input(name, {DType::f32, {n}});
    return embed("time_text_embed." + name + "_embedder",
                 ops::timestep_embedding(b_, t, {.dim = kTimestepDim}));
  }
  ValueId embed(const std::string& name, ValueId x) {
    return mlp(name + ".linear_1", name + ".linear_2", x, C_, ops::UnaryFunction::silu);
  }
};

class Step : Writer {
 public:
  Step(const FluxConfig& config, const FluxShape& shape, const WeightDtype& dtype_of,
       DType activations)
      : Writer("flux_step", config, dtype_of, activations),
        s_(shape),
        columns_(config),
        modulation_(f32_input("modulation", shape.batch, columns_.columns)),
        rope_(f32_input("rope", shape.image, config.head_dim)) {}

  Program run() {
    const ValueId latents = f32_input("latents", s_.batch * s_.image, c_.in_channels);
    ValueId text = b_.input("text", {dtype_, {s_.batch * s_.text, C_}});
    ValueId image = linear("x_embedder", latents, C_);
    for (int64_t i = 0; i < c_.blocks; ++i) block(i, text, image);
    std::vector<ValueId> rows = {text, image};
    if (!s_.apart) rows = {ops::concat_rows(b_, rows, s_.batch)};
    for (int64_t i = 0; i < c_.single_blocks; ++i) single_block(i, rows);
    ValueId x = rows.back();
    if (!s_.apart) {
      x = ops::take_rows(b_, x, {.batch = s_.batch, .begin = s_.text, .rows = s_.image});
    }
    x = norm(x, columns_.last + C_, columns_.last);
    return b_.finish({linear("proj_out", x, c_.in_channels, DType::f32)});
  }

 private:
  struct Heads {
    ValueId q, k, v;
  };

  void block(int64_t i, ValueId& text, ValueId& image) {
    const std::string name = fmt::format("transformer_blocks.{}", i);
    const auto scope = b_.scope(name);
    const int64_t of_image = columns_.image(i), of_text = columns_.text(i);
    const Heads t = heads(name + ".attn", {"add_q_proj", "add_k_proj", "add_v_proj"}, "added_",
                          norm(text, of_text, of_text + C_));
    Heads m =
        heads(name + ".attn", {"to_q", "to_k", "to_v"}, "", norm(image, of_image, of_image + C_));
    rotate(m, 0);
    const auto o =
        ops::dense_attention(b_, {.q = {t.q, m.q}, .k = {t.k, m.k}, .v = {t.v, m.v}}, attention());
    text = add(text, linear(name + ".attn.to_add_out", o[0], C_), of_text + (2 * C_));
    image = add(image, linear(name + ".attn.to_out.0", o[1], C_), of_image + (2 * C_));
    text = feed_forward(name + ".ff_context", text, of_text + (3 * C_));
    image = feed_forward(name + ".ff", image, of_image + (3 * C_));
  }

  ValueId feed_forward(const std::string& name, ValueId x, int64_t column) {
    const ValueId y = mlp(name + ".net.0.proj", name + ".net.2", norm(x, column, column + C_),
                          4 * C_, ops::UnaryFunction::gelu_tanh);
    return add(x, y, column + (2 * C_));
  }

  // Over [text, image] in one part or two.
  void single_block(int64_t i, std::vector<ValueId>& x) {
    const std::string name = fmt::format("single_transformer_blocks.{}", i);
    const auto scope = b_.scope(name);
    const int64_t column = columns_.single(i);
    std::vector<ValueId> y;
    ops::DenseAttentionInputs in;
    for (const ValueId part : x) {
      y.push_back(norm(part, column, column + C_));
      Heads h = heads(name + ".attn", {"to_q", "to_k", "to_v"}, "", y.back());
      if (part == x.back()) rotate(h, s_.apart ? 0 : s_.text);
      in.q.push_back(h.q), in.k.push_back(h.k), in.v.push_back(h.v);
    }
    const auto o = ops::dense_attention(b_, in, attention());
    for (size_t part = 0; part < x.size(); ++part) {
      const ValueId hidden = ops::unary(b_, linear(name + ".proj_mlp", y[part], 4 * C_),
                                        ops::UnaryFunction::gelu_tanh);
      const ValueId out =
          linear(name + ".proj_out", ops::concat_columns(b_, {o[part], hidden}), C_);
      x[part] = add(x[part], out, column + (2 * C_));
    }
  }

  // A stream's queries, keys and values; queries and keys normalized by head.
  Heads heads(const std::string& attn, const std::array<const char*, 3>& projections,
              const char* added, ValueId x) {
    std::vector<ops::LinearWeights> qkv;
    for (const char* projection : projections) {
      qkv.push_back(weights(fmt::format("{}.{}", attn, projection), C_, C_));
    }
    const auto y = ops::linears(b_, x, qkv, dtype_);
    const auto normalize = [&](const char* which, ValueId value) {
      const ValueId w =
          weight(fmt::format("{}.norm_{}{}.weight", attn, added, which), {c_.head_dim});
      return ops::rms_norm(b_, value, w, {.eps = kEps, .group = c_.head_dim, .dtype = dtype_});
    };
    return {normalize("q", y[0]), normalize("k", y[1]), y[2]};
  }

  // Text is at position 0 on every axis, which rotates nothing.
  void rotate(Heads& h, int64_t first) {
    const ops::RopeTableAttrs attrs{.head_dim = c_.head_dim, .batch = s_.batch, .first = first};
    h.q = ops::rope_table(b_, h.q, rope_, attrs);
    h.k = ops::rope_table(b_, h.k, rope_, attrs);
  }

  ops::DenseAttentionAttrs attention() const {
    return {.head_dim = c_.head_dim,
            .batch = s_.batch,
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c_.head_dim)))};
  }
  ValueId norm(ValueId x, int64_t shift, int64_t scale) {
    return ops::layer_norm(
        b_, x, {},
        {.eps = kEps, .group = C_, .scale_column = scale, .shift_column = shift, .dtype = dtype_},
        modulation_);
  }
  ValueId add(ValueId x, ValueId y, int64_t gate) {
    return ops::gated_add(b_, x, y, modulation_, gate);
  }

  const FluxShape& s_;
  const FluxModulation columns_;
  const ValueId modulation_;
  const ValueId rope_;
};

class Text : Writer {
 public:
  using Writer::Writer;
  Program run(int64_t rows) {
    const ValueId x = f32_input("text_states", rows, c_.text_dim);
    return b_.finish({linear("context_embedder", x, C_)});
  }
};

}  // namespace

FluxConfig read_flux_config(const JsonObject& config) {
  require_known_fields(config, "transformer", ConfigWriter::diffusers,
                       {"in_channels", "num_layers", "num_single_layers", "num_attention_heads",
                        "attention_head_dim", "joint_attention_dim", "pooled_projection_dim",
                        "guidance_embeds", "axes_dims_rope", "patch_size", "out_channels"});
  const FluxConfig otherwise;
  FluxConfig c{
      .in_channels = read_count(config, "transformer", "in_channels", otherwise.in_channels),
      .blocks = read_count(config, "transformer", "num_layers", otherwise.blocks),
      .single_blocks =
          read_count(config, "transformer", "num_single_layers", otherwise.single_blocks),
      .heads = read_count(config, "transformer", "num_attention_heads", otherwise.heads),
      .head_dim = read_count(config, "transformer", "attention_head_dim", otherwise.head_dim),
      .text_dim = read_count(config, "transformer", "joint_attention_dim", otherwise.text_dim),
      .pooled_dim =
          read_count(config, "transformer", "pooled_projection_dim", otherwise.pooled_dim),
      .guidance = config.get_or<bool>("guidance_embeds", otherwise.guidance),
      .rope_dims = config.get_or<std::vector<int64_t>>("axes_dims_rope", otherwise.rope_dims)};
  if (const int64_t patch = config.get_or<int64_t>("patch_size", 1); patch != 1) {
    fail(ErrorCode::kUnsupported, "transformer: patch_size is {}, wanted is 1", patch);
  }
  if (const int64_t out = config.get_or<int64_t>("out_channels", c.in_channels);
      out != c.in_channels) {
    fail(ErrorCode::kUnsupported,
         "transformer: out_channels is {} beside in_channels {}: models that take an image or a "
         "mask as input are not supported",
         out, c.in_channels);
  }
  if (c.in_channels % 4 != 0) {
    fail(ErrorCode::kUnsupported, "transformer: in_channels is {}, a multiple of 4 is wanted",
         c.in_channels);
  }
  const bool even = std::ranges::all_of(c.rope_dims, [](int64_t d) { return d > 0 && d % 2 == 0; });
  if (c.rope_dims.size() != 3 || !even ||
      std::accumulate(c.rope_dims.begin(), c.rope_dims.end(), int64_t{0}) != c.head_dim) {
    fail(ErrorCode::kUnsupported,
         "transformer: axes_dims_rope is {}, wanted are 3 even numbers whose sum is "
         "attention_head_dim, {}",
         config.value().value("axes_dims_rope", nlohmann::json(otherwise.rope_dims)).dump(),
         c.head_dim);
  }
  return c;
}

FluxModulation::FluxModulation(const FluxConfig& config)
    : C(config.width()),
      singles(12 * C * config.blocks),
      last(singles + (3 * C * config.single_blocks)),
      columns(last + (2 * C)) {}

Program flux_text(const FluxConfig& config, int64_t rows, const WeightDtype& dtype_of) {
  return Text("flux_text", config, dtype_of).run(rows);
}

Program flux_modulation(const FluxConfig& config, int64_t n, const WeightDtype& dtype_of,
                        DType activations) {
  return Modulation("flux_modulation", config, dtype_of, activations).run(n);
}

Program flux_step(const FluxConfig& config, const FluxShape& shape, const WeightDtype& dtype_of,
                  DType activations) {
  return Step(config, shape, dtype_of, activations).run();
}

std::vector<float> flux_rope_table(const FluxConfig& config, int64_t h, int64_t w) {
  std::vector<ops::RopeAxis> axes;
  for (int64_t dim : config.rope_dims) axes.push_back({dim, {}});
  for (int64_t y = 0; y < h; ++y) {
    for (int64_t x = 0; x < w; ++x) {
      axes[0].positions.push_back(0);
      axes[1].positions.push_back(static_cast<double>(y));
      axes[2].positions.push_back(static_cast<double>(x));
    }
  }
  return ops::make_rope_table(axes, 10000);
}

}  // namespace braid
