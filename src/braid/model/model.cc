#include "braid/model/model.h"

#include <set>

namespace braid {
namespace {

ModelConfig read_config(const ModelFile& file, const ModelFamily& family) {
  const auto* gguf = std::get_if<GgufFile>(&file);
  ModelConfig config =
      gguf ? family.gguf_config(*gguf) : family.hf_config(std::get<HfFolder>(file).config());
  config.family = family.name;
  return config;
}

// Tables that some converters leave in a file and that the engine computes itself.
bool is_derived(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

Model::Model(const std::string& path)
    : file_(open_model_file(path)),
      family_(family_of(file_)),
      config_(read_config(file_, family_)) {
  check_weights();
}

std::string Model::file_name(std::string_view canonical) const {
  if (canonical == "lm_head" && config_.tied_head) canonical = "token_embd";
  return std::holds_alternative<GgufFile>(file_) ? family_.gguf_name(canonical)
                                                 : family_.hf_name(canonical);
}

TensorView Model::weight(std::string_view canonical) const {
  return source().get(file_name(canonical));
}

Program Model::forward(const ForwardShape& shape) const {
  return family_.forward(config_, shape,
                         [this](std::string_view name) { return weight(name).dtype; });
}

void Model::check_weights() {
  const ForwardShape smallest = {{1, 1, 1}, 1, 1, 1, DType::f32};
  const Program program = forward(smallest);
  std::set<std::string, std::less<>> used;
  for (const Value& value : program.values) {
    if (value.kind != ValueKind::weight) continue;
    const TensorView view = source().get(file_name(value.name), value.type.shape);
    if (!used.insert(file_name(value.name)).second) continue;
    parameters_ += view.shape.elems();
    weight_bytes_ += view.bytes();
  }
  if (config_.tied_head) used.insert(family_.hf_name("lm_head"));  // a copy that some files keep
  for (std::string_view name : source().names()) {
    if (used.contains(name) || is_derived(name)) continue;
    fail(ErrorCode::kUnsupported, "{}: a {} model has no use for tensor '{}'", source().path(),
         family_.name, name);
  }
}

DType Model::default_kv_dtype() const {
  const DType weights = weight("layers.0.attn.k").dtype;
  return is_float(weights) ? weights : DType::f16;
}

}  // namespace braid
