#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/model_file.h"
#include "braid/model/config.h"
#include "braid/program/program.h"

namespace braid {

// Sizes that a forward pass is planned for.
struct ForwardShape {
  Extents capacity;
  int64_t pages = 0;               // NB
  int64_t page_size = 0;           // BS
  int64_t pages_per_sequence = 0;  // columns of the page table
  DType kv_dtype = DType::f16;
  // Between the ops of a layer; the residual stream and the logits are f32.
  DType activations = DType::f32;
  bool every_row = false;  // rows are tokens: none is left out
};

// The dtype that a weight has in the file, by canonical name.
using WeightDtype = std::function<DType(std::string_view name)>;

// How a family's files call the experts of a layer: a tensor for each, one of all [E, out, in], or
// gate and up in one [E, 2 out, in]. {0} is the layer, {1} the expert, {2} the part by the names
// below, {3} the part as "gate", "up" or "down".
struct ExpertNames {
  std::string_view each = "model.layers.{0}.mlp.experts.{1}.{2}.weight";
  std::string_view all = "model.layers.{0}.mlp.experts.{3}_proj";
  std::string_view fused = "model.layers.{0}.mlp.experts.gate_up_proj";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
};

// Rows of a file's tensor that make a weight, in order, for tensors with several weights.
struct PackedRows {
  std::vector<Range> rows;
  int64_t tensor_rows = 0;  // that the tensor has to have
};

// One model family: how its files are read, and its forward pass. A family is one file of this
// folder, declared below, and one line in registry.cc. Canonical weight names: token_embd,
// output_norm, lm_head, rope_factors, layers.N.attn_norm, layers.N.attn.{q,k,v,o}[.bias],
// layers.N.attn.{q,k,out}_norm, layers.N.mlp_norm, layers.N.mlp.out_norm,
// layers.N.mlp.{gate,up,down}[.bias]; with experts layers.N.mlp.{router,shared_gate,choice.bias},
// layers.N.mlp.{shared,experts}.{gate,up,down}; with latent attention
// layers.N.attn.{q,o,q_a,q_b,kv_a,k_b,v_b,q_a_norm,kv_a_norm}. The head is `lm_head`: a tied one is
// read from the tensor of `token_embd`, and ranks that divide tokens divide its rows. Other names
// are the family's own, as long as gguf_name and hf_name know them: what tensor parallelism divides
// follows from the ops (parallel/tensor_parallel.h).
struct ModelFamily {
  std::string_view name;                             // model_type of config.json
  std::vector<std::string_view> gguf_architectures;  // general.architecture
  std::vector<std::string_view> hf_architectures;    // config.json: architectures
  ModelConfig (*gguf_config)(const GgufFile& file);
  ModelConfig (*hf_config)(const JsonObject& config);
  // The name in the file of a canonical weight.
  std::string (*gguf_name)(std::string_view canonical);
  std::string (*hf_name)(std::string_view canonical);
  // The logical forward pass: the inputs of forward_inputs.h; states layers.N.kv.{k,v} or
  // layers.N.kv.latent; output logits f32 [R, V]. A capacity of one token has a single row, for any
  // `rows`.
  Program (*forward)(const ModelConfig& config, const ForwardShape& shape,
                     const WeightDtype& dtype_of);
  // For families that share a GGUF architecture: whether a file with the architecture belongs to
  // this family.
  bool (*gguf_takes)(const GgufFile& file) = nullptr;
  // A weight's rows in its tensor (gguf_name, hf_name), where other weights share the tensor;
  // nothing: the tensor is the weight's own. Null: no weight is packed.
  std::optional<PackedRows> (*packed)(const ModelConfig& config,
                                      std::string_view canonical) = nullptr;
  // Layers behind the last layer predict further tokens: these layers are not used.
  bool predicts = false;
  ExpertNames hf_experts = {};
  ExpertNames gguf_experts = {.each = "blk.{0}.ffn_{3}.{1}.weight",
                              .all = "blk.{0}.ffn_{3}_exps.weight",
                              .fused = "blk.{0}.ffn_gate_up_exps.weight"};
};

extern const ModelFamily kLlama;
extern const ModelFamily kMistral;
extern const ModelFamily kQwen2;
extern const ModelFamily kQwen3;
extern const ModelFamily kMixtral;
extern const ModelFamily kQwen2Moe;
extern const ModelFamily kQwen3Moe;
extern const ModelFamily kDeepseekV2;
extern const ModelFamily kDeepseekV3;
extern const ModelFamily kGlm4MoeLite;
extern const ModelFamily kInternLm2;
extern const ModelFamily kGlm;
extern const ModelFamily kGlm4;
extern const ModelFamily kChatGlm;

const std::vector<const ModelFamily*>& model_families();

// The family of a file; fails with kUnsupported, listing the known architectures. config.json
// names the family by architectures, otherwise by model_type; if both are present, both must
// agree.
const ModelFamily& family_of(const ModelFile& file);
const ModelFamily& family_of(const JsonObject& config, const std::string& path);

}  // namespace braid
