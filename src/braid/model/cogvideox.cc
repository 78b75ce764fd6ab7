#include "braid/model/cogvideox.h"

#include <cmath>

#include "braid/model/transformer_writer.h"
#include "braid/ops/concat.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope_table.h"
#include "braid/ops/timestep.h"
#include "braid/ops/unary.h"

namespace braid {
namespace {

constexpr float kHeadEps = 1e-6f;  // norms over queries and keys

class Text : TransformerWriter {
 public:
  explicit Text(const WeightDtype& dtype_of)
      : TransformerWriter("cogvideox_text", dtype_of, DType::f32) {}
  Program run(const CogVideoXConfig& c, int64_t rows) {
    const ValueId x = f32_input("text_states", rows, c.text_dim);
    return b_.finish({linear("patch_embed.text_proj", x, c.C())});
  }
};

class Modulation : TransformerWriter {
 public:
  Modulation(const WeightDtype& dtype_of, DType activations)
      : TransformerWriter("cogvideox_modulation", dtype_of, activations) {}

  Program run(const CogVideoXConfig& c, int64_t n) {
    const ValueId t = b_.input("timestep", {DType::f32, {n}});
    ValueId x = ops::timestep_embedding(b_, t, {.dim = c.C()});
    x = ops::unary(b_, linear("time_embedding.linear_1", x, c.time_dim), ops::UnaryFunction::silu);
    x = ops::unary(b_, linear("time_embedding.linear_2", x, c.time_dim), ops::UnaryFunction::silu);
    std::vector<ValueId> outputs;
    for (int64_t i = 0; i < c.blocks; ++i) {
      for (const char* norm : {"norm1", "norm2"}) {
        outputs.push_back(linear(fmt::format("transformer_blocks.{}.{}.linear", i, norm), x,
                                 6 * c.C(), DType::f32));
      }
    }
    outputs.push_back(linear("norm_out.linear", x, 2 * c.C(), DType::f32));
    return b_.finish(outputs);
  }
};

class Step : TransformerWriter {
 public:
  Step(const CogVideoXConfig& config, const CogVideoXShape& shape, const WeightDtype& dtype_of,
       DType activations)
      : TransformerWriter("cogvideox_step", dtype_of, activations),
        c_(config),
        C_(config.C()),
        s_(shape),
        columns_(config),
        modulation_(f32_input("modulation", 1, columns_.columns)) {}

  Program run() {
    const ValueId latents = f32_input("latents", s_.tokens, c_.token_dim());
    positions_ = c_.rotary ? f32_input("positions", s_.tokens, c_.head_dim)
                           : b_.input("positions", {dtype_, {s_.tokens, C_}});
    video_ = ops::linear(b_, latents,
                         weights("patch_embed.proj", C_, c_.token_dim(), c_.patch_bias), dtype_);
    if (!c_.rotary) video_ = ops::add(b_, video_, positions_);
    if (s_.passes) return passes(video_);
    text_ = b_.input("text", {dtype_, {s_.text, s_.texts * C_}});
    if (s_.texts > 1) {
      text_ = ops::reshape_rows(b_, text_, C_);
      const std::vector<ValueId> copies(s_.texts, video_);
      video_ = ops::reshape_rows(b_, ops::concat_columns(b_, copies), C_);
    }
    return b_.finish({side_by_side(pass(s_.texts), c_.token_dim())});
  }

 private:
  struct Heads {
    ValueId q, k, v;
  };

  Program passes(ValueId video) {
    std::vector<ValueId> made;
    for (int64_t i = 0; i < s_.texts; ++i) {
      text_ = b_.input(fmt::format("text.{}", i), {dtype_, {s_.text, C_}});
      video_ = video;
      const auto scope = b_.scope(fmt::format("pass.{}", i));
      made.push_back(pass(1));
    }
    return b_.finish(made);
  }

  // All blocks over text_ and video_, whose rows are tokens, each with `batch` texts: attention
  // sees a token's texts as further heads, so a batch is divided over ranks as one text is.
  ValueId pass(int64_t batch) {
    batch_ = batch;
    for (int64_t i = 0; i < c_.blocks; ++i) block(i);
    const ValueId x = ops::layer_norm(b_, video_, affine("norm_final", C_),
                                      {.eps = c_.eps, .group = C_, .dtype = dtype_});
    return linear("proj_out", norm("norm_out.norm", x, columns_.last), c_.token_dim(), DType::f32);
  }

  void block(int64_t i) {
    const std::string name = fmt::format("transformer_blocks.{}", i);
    const auto scope = b_.scope(name);
    attend(name, columns_.attention(i));
    const int64_t column = columns_.mlp(i);
    const ValueId text = mlp(name + ".ff", norm(name + ".norm2.norm", text_, column + (3 * C_)));
    const ValueId video = mlp(name + ".ff", norm(name + ".norm2.norm", video_, column));
    add(text, video, column);
  }

  void attend(const std::string& name, int64_t column) {
    const Heads t = heads(name + ".attn1", norm(name + ".norm1.norm", text_, column + (3 * C_)));
    Heads v = heads(name + ".attn1", norm(name + ".norm1.norm", video_, column));
    if (c_.rotary) {
      const ops::RopeTableAttrs attrs{.head_dim = c_.head_dim};
      v.q = ops::rope_table(b_, v.q, positions_, attrs);
      v.k = ops::rope_table(b_, v.k, positions_, attrs);
    }
    const auto o = ops::dense_attention(
        b_, {.q = {t.q, v.q}, .k = {t.k, v.k}, .v = {t.v, v.v}},
        {.head_dim = c_.head_dim,
         .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c_.head_dim)))});
    const auto project = [&](ValueId rows) {
      return linear(name + ".attn1.to_out.0", batch_ == 1 ? rows : ops::reshape_rows(b_, rows, C_),
                    C_);
    };
    add(project(o[0]), project(o[1]), column);
  }

  // A batch's rows of `columns`, texts beside each other: each token's texts in a row.
  ValueId side_by_side(ValueId rows, int64_t columns) {
    return batch_ == 1 ? rows : ops::reshape_rows(b_, rows, batch_ * columns);
  }

  // Queries, keys and values, of a batch side by side; queries and keys normalized by head.
  Heads heads(const std::string& attn, ValueId x) {
    std::vector<ops::LinearWeights> qkv;
    for (const char* projection : {".to_q", ".to_k", ".to_v"}) {
      qkv.push_back(weights(attn + projection, C_, C_, c_.qkv_bias));
    }
    const auto y = ops::linears(b_, x, qkv, dtype_);
    const auto normalize = [&](const char* which, ValueId value) {
      return ops::layer_norm(b_, side_by_side(value, C_), affine(attn + which, c_.head_dim),
                             {.eps = kHeadEps, .group = c_.head_dim, .dtype = dtype_});
    };
    return {normalize(".norm_q", y[0]), normalize(".norm_k", y[1]), side_by_side(y[2], C_)};
  }

  ValueId mlp(const std::string& name, ValueId x) {
    const ValueId hidden = linear(name + ".net.0.proj", x, 4 * C_);
    return linear(name + ".net.2", ops::unary(b_, hidden, ops::UnaryFunction::gelu_tanh), C_);
  }

  ops::Affine affine(const std::string& name, int64_t width) {
    return {weight(name + ".weight", {width}), weight(name + ".bias", {width})};
  }
  // A layer norm, scaled and shifted by the modulation's columns from `shift` on.
  ValueId norm(const std::string& name, ValueId x, int64_t shift) {
    return ops::layer_norm(b_, x, affine(name, C_),
                           {.eps = c_.eps,
                            .group = C_,
                            .scale_column = shift + C_,
                            .shift_column = shift,
                            .dtype = dtype_},
                           modulation_);
  }
  void add(ValueId text, ValueId video, int64_t column) {
    video_ = ops::gated_add(b_, video_, video, modulation_, column + (2 * C_));
    text_ = ops::gated_add(b_, text_, text, modulation_, column + (5 * C_));
  }

  const CogVideoXConfig& c_;
  const int64_t C_;
  const CogVideoXShape& s_;
  const CogVideoXModulation columns_;
  const ValueId modulation_;
  int64_t batch_ = 1;  // texts of the present pass
  ValueId positions_ = kNoValue;
  ValueId text_ = kNoValue, video_ = kNoValue;  // between blocks
};

}  // namespace

Program cogvideox_text(const CogVideoXConfig& config, int64_t rows, const WeightDtype& dtype_of) {
  return Text(dtype_of).run(config, rows);
}

Program cogvideox_modulation(const CogVideoXConfig& config, int64_t n, const WeightDtype& dtype_of,
                             DType activations) {
  return Modulation(dtype_of, activations).run(config, n);
}

Program cogvideox_step(const CogVideoXConfig& config, const CogVideoXShape& shape,
                       const WeightDtype& dtype_of, DType activations) {
  return Step(config, shape, dtype_of, activations).run();
}

}  // namespace braid
