#include "braid/model/t5_encoder.h"

#include "braid/model/component_config.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/relative_bias.h"

namespace braid {
namespace {

constexpr std::string_view kComponent = "T5's encoder";

class T5Encoder {
 public:
  T5Encoder(const T5EncoderConfig& config, const T5EncoderShape& shape, const WeightDtype& dtype_of)
      : b_("t5_encoder", {}), c_(config), s_(shape), dtype_of_(dtype_of) {}

  Program run() {
    const ValueId ids = b_.input("token_ids", {DType::i32, {s_.batch * s_.length}});
    if (s_.padding) key_len_ = b_.input("key_len", {DType::i32, {s_.batch}});
    ValueId x = ops::embedding(b_, ids, weight("shared.weight", {c_.vocab, c_.width}));
    bias_ = ops::relative_bias(
        b_,
        weight("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
               {c_.buckets, c_.heads}),
        {.length = s_.length, .max_distance = c_.max_distance});
    for (int64_t i = 0; i < c_.layers; ++i) x = block(i, x);
    return b_.finish({norm("encoder.final_layer_norm", x)});
  }

 private:
  ValueId block(int64_t i, ValueId x) {
    const std::string name = fmt::format("encoder.block.{}", i);
    const auto scope = b_.scope(name);
    const int64_t inner = c_.heads * c_.head_dim;
    const std::string attention = name + ".layer.0.", mlp = name + ".layer.1.";
    ValueId h = norm(attention + "layer_norm", x);
    const auto qkv = ops::linears(b_, h,
                                  {{matrix(attention + "SelfAttention.q", inner, c_.width)},
                                   {matrix(attention + "SelfAttention.k", inner, c_.width)},
                                   {matrix(attention + "SelfAttention.v", inner, c_.width)}});
    h = ops::dense_attention(
        b_, {.q = {qkv[0]}, .k = {qkv[1]}, .v = {qkv[2]}, .bias = bias_, .key_len = key_len_},
        {.head_dim = c_.head_dim, .batch = s_.batch, .scale = 1})[0];
    x = ops::add(b_, x,
                 ops::linear(b_, h, {matrix(attention + "SelfAttention.o", c_.width, inner)}));
    h = norm(mlp + "layer_norm", x);
    const auto gate = ops::linears(b_, h,
                                   {{matrix(mlp + "DenseReluDense.wi_0", c_.hidden, c_.width)},
                                    {matrix(mlp + "DenseReluDense.wi_1", c_.hidden, c_.width)}});
    h = ops::gated(b_, gate[0], gate[1], {.activation = ops::Activation::gelu_tanh});
    return ops::add(b_, x,
                    ops::linear(b_, h, {matrix(mlp + "DenseReluDense.wo", c_.width, c_.hidden)}));
  }

  ValueId norm(const std::string& name, ValueId x) {
    return ops::rms_norm(b_, x, weight(name + ".weight", {c_.width}),
                         {.eps = c_.eps, .group = c_.width});
  }
  ValueId matrix(const std::string& name, int64_t out, int64_t in) {
    return weight(name + ".weight", {out, in});
  }
  ValueId weight(const std::string& name, const Shape& shape) {
    return b_.weight(name, {dtype_of_(name), shape});
  }

  Builder b_;
  const T5EncoderConfig& c_;
  const T5EncoderShape& s_;
  const WeightDtype& dtype_of_;
  ValueId bias_ = kNoValue;  // f32 [H, L, L]
  ValueId key_len_ = kNoValue;
};

}  // namespace

T5EncoderConfig read_t5_encoder_config(const JsonObject& config) {
  require_text(config, kComponent, "model_type", {"t5"});
  require_text(config, kComponent, "dense_act_fn", {"gelu_new"});
  for (const auto& [key, wanted] : {std::pair("is_gated_act", true), {"is_decoder", false}}) {
    if (config.get_or<bool>(key, wanted) == wanted) continue;
    fail(ErrorCode::kUnsupported, "{}: {} is {}, {} is supported", kComponent, key, !wanted,
         wanted);
  }
  // From "dropout_rate" on: about training and the decoder.
  require_known_fields(config, kComponent, ConfigWriter::transformers,
                       {"vocab_size", "d_model", "d_ff", "num_layers", "num_heads", "d_kv",
                        "relative_attention_num_buckets", "relative_attention_max_distance",
                        "layer_norm_epsilon", "feed_forward_proj", "model_type", "dense_act_fn",
                        "is_gated_act", "is_decoder", "dropout_rate", "classifier_dropout",
                        "num_decoder_layers", "n_positions", "scale_decoder_outputs"});
  const auto count = [&](std::string_view key, int64_t otherwise) {
    return read_count(config, kComponent, key, otherwise);
  };
  const T5EncoderConfig c{.vocab = count("vocab_size", 32128),
                          .width = count("d_model", 512),
                          .hidden = count("d_ff", 2048),
                          .layers = count("num_layers", 6),
                          .heads = count("num_heads", 8),
                          .head_dim = count("d_kv", 64),
                          .buckets = count("relative_attention_num_buckets", 32),
                          .max_distance = count("relative_attention_max_distance", 128),
                          .eps = read_positive(config, kComponent, "layer_norm_epsilon", 1e-6f)};
  const auto mlp = config.get_or<std::string>("feed_forward_proj", "relu");
  if (mlp != "gated-gelu") {
    fail(ErrorCode::kUnsupported, "{}: feed_forward_proj is '{}', gated-gelu is supported",
         kComponent, mlp);
  }
  return c;
}

Program t5_encoder(const T5EncoderConfig& config, const T5EncoderShape& shape,
                   const WeightDtype& dtype_of) {
  return T5Encoder(config, shape, dtype_of).run();
}

bool t5_encoder_ignores(std::string_view tensor) {
  return tensor == "encoder.embed_tokens.weight" || tensor.starts_with("decoder.") ||
         tensor == "lm_head.weight";
}

}  // namespace braid
