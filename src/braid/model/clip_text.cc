#include "braid/model/clip_text.h"

#include <cmath>

#include "braid/model/component_config.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/unary.h"

namespace braid {
namespace {

constexpr std::string_view kComponent = "CLIP's text encoder";

class ClipText {
 public:
  ClipText(const ClipTextConfig& config, int64_t batch, int64_t length, const WeightDtype& dtype_of)
      : b_("clip_text", {.row = batch}),
        c_(config),
        batch_(batch),
        tokens_(batch * length),
        dtype_of_(dtype_of) {}

  Program run() {
    const ValueId ids = b_.input("token_ids", {DType::i32, {tokens_}});
    const ValueId positions = b_.input("positions", {DType::i32, {tokens_}});
    const ValueId rows = b_.input("rows", {DType::i32, {batch_}, BatchAxis::row});
    const std::string embeddings = c_.prefix + "embeddings.";
    ValueId x = ops::add(
        b_,
        ops::embedding(b_, ids,
                       weight(embeddings + "token_embedding.weight", {c_.vocab, c_.width})),
        ops::embedding(b_, positions,
                       weight(embeddings + "position_embedding.weight", {c_.positions, c_.width})));
    for (int64_t i = 0; i < c_.layers; ++i) x = layer(i, x);
    return b_.finish({norm(c_.prefix + "final_layer_norm", ops::gather_rows(b_, x, rows))});
  }

 private:
  ValueId layer(int64_t i, ValueId x) {
    const std::string name = fmt::format("{}encoder.layers.{}", c_.prefix, i);
    const auto scope = b_.scope(name);
    const std::string attention = name + ".self_attn.";
    ValueId h = norm(name + ".layer_norm1", x);
    const auto qkv = ops::linears(b_, h,
                                  {weights(attention + "q_proj", c_.width, c_.width),
                                   weights(attention + "k_proj", c_.width, c_.width),
                                   weights(attention + "v_proj", c_.width, c_.width)});
    const int64_t D = c_.width / c_.heads;
    h = ops::dense_attention(b_, {.q = {qkv[0]}, .k = {qkv[1]}, .v = {qkv[2]}},
                             {.head_dim = D,
                              .batch = batch_,
                              .scale = 1 / std::sqrt(static_cast<float>(D)),
                              .causal = true})[0];
    x = ops::add(b_, x, ops::linear(b_, h, weights(attention + "out_proj", c_.width, c_.width)));
    h = norm(name + ".layer_norm2", x);
    h = ops::linear(b_, h, weights(name + ".mlp.fc1", c_.hidden, c_.width));
    h = ops::unary(b_, h, ops::UnaryFunction::quick_gelu);
    return ops::add(b_, x, ops::linear(b_, h, weights(name + ".mlp.fc2", c_.width, c_.hidden)));
  }

  ValueId norm(const std::string& name, ValueId x) {
    return ops::layer_norm(
        b_, x, {weight(name + ".weight", {c_.width}), weight(name + ".bias", {c_.width})},
        {.eps = c_.eps, .group = c_.width});
  }
  ops::LinearWeights weights(const std::string& name, int64_t out, int64_t in) {
    return {weight(name + ".weight", {out, in}), weight(name + ".bias", {out})};
  }
  ValueId weight(const std::string& name, const Shape& shape) {
    return b_.weight(name, {dtype_of_(name), shape});
  }

  Builder b_;
  const ClipTextConfig& c_;
  const int64_t batch_;
  const int64_t tokens_;
  const WeightDtype& dtype_of_;
};

}  // namespace

ClipTextConfig read_clip_text_config(const JsonObject& config) {
  require_text(config, kComponent, "model_type", {"clip_text_model"});
  require_known_fields(
      config, kComponent, ConfigWriter::transformers,
      {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
       "max_position_embeddings", "layer_norm_eps", "hidden_act", "model_type", "projection_dim",
       "attention_dropout", "dropout"});
  const ClipTextConfig otherwise;
  const auto count = [&](std::string_view key, int64_t value) {
    return read_count(config, kComponent, key, value);
  };
  const ClipTextConfig c{.vocab = count("vocab_size", otherwise.vocab),
                         .width = count("hidden_size", 512),
                         .hidden = count("intermediate_size", 2048),
                         .layers = count("num_hidden_layers", otherwise.layers),
                         .heads = count("num_attention_heads", 8),
                         .positions = count("max_position_embeddings", otherwise.positions),
                         .eps = read_positive(config, kComponent, "layer_norm_eps", otherwise.eps)};
  require_text(config, kComponent, "hidden_act", {"quick_gelu"});
  if (c.width % c.heads != 0) {
    fail(ErrorCode::kUnsupported, "{}: hidden_size is {}, no whole number for each of {} heads",
         kComponent, c.width, c.heads);
  }
  return c;
}

Program clip_text(const ClipTextConfig& config, int64_t batch, int64_t length,
                  const WeightDtype& dtype_of) {
  if (length < 1 || length > config.positions) {
    fail(ErrorCode::kInvalidArgument, "{}: a text of {} tokens, 1 to {} are allowed", kComponent,
         length, config.positions);
  }
  return ClipText(config, batch, length, dtype_of).run();
}

bool clip_text_ignores(std::string_view tensor) {
  return tensor.ends_with("embeddings.position_ids");
}

}  // namespace braid
