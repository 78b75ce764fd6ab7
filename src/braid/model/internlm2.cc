// InternLM2 and 2.5: Llama under other names, with q, k and v in one tensor. Its rows go by KV
// head: the query heads of the group, then k, then v.
#include <array>

#include "braid/model/decoder.h"

namespace braid {
namespace {

using decoder::NamePair;

constexpr auto kNames = std::to_array<NamePair>({
    {"token_embd", "model.tok_embeddings"},
    {"output_norm", "model.norm"},
    {"lm_head", "output"},
    {"attn_norm", "attention_norm"},
    {"attn.q", "attention.wqkv"},
    {"attn.k", "attention.wqkv"},
    {"attn.v", "attention.wqkv"},
    {"attn.o", "attention.wo"},
    {"mlp_norm", "ffn_norm"},
    {"mlp.gate", "feed_forward.w1"},
    {"mlp.up", "feed_forward.w3"},
    {"mlp.down", "feed_forward.w2"},
});

std::string hf_name(std::string_view canonical) {
  return decoder::name_by(kNames, "model.layers.", canonical);
}

std::optional<PackedRows> packed(const ModelConfig& c, std::string_view canonical) {
  const int64_t group = c.Hq / c.Hkv;
  // Each KV head's group + 2 parts with D rows.
  const auto parts = [&](int64_t begin, int64_t end) {
    PackedRows packed{.tensor_rows = (c.Hq + 2 * c.Hkv) * c.D};
    for (int64_t h = 0; h < c.Hkv; ++h) {
      const int64_t first = h * (group + 2);
      packed.rows.push_back({(first + begin) * c.D, (first + end) * c.D});
    }
    return packed;
  };
  const auto is = [&](std::string_view name) {
    return canonical.ends_with(name) || canonical.ends_with(fmt::format("{}.bias", name));
  };
  if (is(".attn.q")) return parts(0, group);
  if (is(".attn.k")) return parts(group, group + 1);
  if (is(".attn.v")) return parts(group + 1, group + 2);
  return std::nullopt;
}

ModelConfig hf_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "internlm2");
  const TableReader keys(config, "config.json", hf_keys(), "internlm2");
  c.qkv_bias = c.o_bias = keys.get<bool>("bias");
  return c;
}

}  // namespace

const ModelFamily kInternLm2 = {
    .name = "internlm2",
    .gguf_architectures = {},
    .hf_architectures = {"InternLM2ForCausalLM"},
    .gguf_config = nullptr,
    .hf_config = hf_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = hf_name,
    .forward = decoder::forward,
    .packed = packed,
};

}  // namespace braid
