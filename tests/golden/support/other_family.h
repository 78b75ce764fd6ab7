#pragma once

#include "braid/model/forward_inputs.h"
#include "braid/model/model.h"
#include "braid/ops/embedding.h"
#include "braid/ops/norm.h"

// A family whose weights have names of its own and whose norms go over all columns at once: of q
// and k as in OLMo 2, and before the last linear of a layer.
namespace braid::golden {

class OtherForward {
 public:
  OtherForward(const ModelConfig& config, const ForwardShape& shape, const WeightDtype& dtype_of)
      : c_(config),
        shape_(shape),
        dtype_of_(dtype_of),
        b_("other", shape.capacity),
        in_(forward_inputs(b_, shape)) {}

  Program run() {
    ValueId x = ops::embedding(b_, in_.token_ids, weight("token_embd", {c_.V, c_.C}));
    for (int64_t i = 0; i < c_.layers; ++i) x = layer(fmt::format("block{}", i), x);
    if (!shape_.every_row) x = ops::gather_rows(b_, x, in_.rows);
    return b_.finish({ops::linear(b_, normed("norm", x), linear("out", c_.V, c_.C))});
  }

 private:
  ValueId layer(const std::string& name, ValueId x) {
    const auto scope = b_.scope(name);
    x = ops::add(b_, x, normed(name + ".after", attention(name, x)));
    // Read by a linear, and by the residual stream.
    const ValueId side = project(x, name + ".side.a", c_.C);
    x = ops::add(b_, x, side);
    x = ops::add(b_, x, project(side, name + ".side.b", c_.C));
    // Of three columns.
    const ValueId narrow = project(x, name + ".narrow.a", 3);
    x = ops::add(b_, x, project(narrow, name + ".narrow.b", c_.C));
    const auto both = ops::linears(
        b_, x, {linear(name + ".ffn.a", c_.F, c_.C), linear(name + ".ffn.b", c_.F, c_.C)},
        shape_.activations);
    const ValueId y = normed(name + ".between", ops::gated(b_, both[0], both[1], {}));
    return ops::add(b_, x, project(y, name + ".ffn.c", c_.C));
  }

  ValueId attention(const std::string& name, ValueId x) {
    const auto turned = [&](ValueId y) {
      return ops::rope(b_, y, in_.positions, kNoValue, c_.rope);
    };
    const ValueId q =
        turned(normed(name + ".query_norm", project(x, name + ".query", c_.Hq * c_.D)));
    const ValueId k = turned(normed(name + ".key_norm", project(x, name + ".key", c_.Hkv * c_.D)));
    const ValueType cache = {shape_.kv_dtype, {shape_.pages, shape_.page_size, c_.Hkv, c_.D}};
    const ops::KvCache kv = {b_.state(name + ".keys", cache), b_.state(name + ".values", cache)};
    ops::kv_append(b_, k, project(x, name + ".value", c_.Hkv * c_.D), in_.meta, kv, c_.D);
    const ValueId out = ops::attention(b_, q, kv, in_.meta,
                                       {.head_dim = c_.D, .group = c_.Hq / c_.Hkv, .scale = 0.25f});
    return project(out, name + ".back", c_.C);
  }

  ValueId normed(const std::string& name, ValueId x) {
    const int64_t width = b_.type(x).shape[1];
    return ops::rms_norm(b_, x, weight(name, {width}), {c_.eps, width, shape_.activations});
  }
  ValueId project(ValueId x, const std::string& name, int64_t n) {
    return ops::linear(b_, x, linear(name, n, b_.type(x).shape[1]), shape_.activations);
  }
  ops::LinearWeights linear(const std::string& name, int64_t n, int64_t k) {
    return {weight(name, {n, k})};
  }
  ValueId weight(const std::string& name, const Shape& shape) {
    return b_.weight(name, {dtype_of_(name), shape});
  }

  const ModelConfig& c_;
  const ForwardShape& shape_;
  const WeightDtype& dtype_of_;
  Builder b_;
  const ForwardInputs in_;
};

inline const ModelFamily kOther = {
    .name = "other",
    .gguf_architectures = {},
    .hf_architectures = {},
    .gguf_config = nullptr,
    .hf_config = nullptr,
    .gguf_name = nullptr,
    .hf_name = nullptr,
    .forward =
        [](const ModelConfig& config, const ForwardShape& shape, const WeightDtype& dtype_of) {
          return OtherForward(config, shape, dtype_of).run();
        },
};

// Six query heads: parts of four ranks share KV heads, of which there are fewer than ranks.
inline ModelShape other_shape(DType dtype) {
  ModelShape shape{.family = &kOther, .config = {}, .weight_dtype = dtype};
  ModelConfig& c = shape.config;
  c.family = "other";
  c.layers = 3, c.C = 96, c.F = 130, c.V = 271, c.Hq = 6, c.Hkv = 2, c.D = 16, c.context = 128;
  c.rope = {.head_dim = 16, .rotary_dim = 16};
  c.windows = {0, 0, 0};
  return shape;
}

}  // namespace braid::golden
