#include "braid/model/model.h"

#include <algorithm>
#include <set>

#include "braid/ops/linear.h"

namespace braid {
namespace {

ModelConfig read_config(const ModelFile& file, const ModelFamily& family) {
  const auto* gguf = std::get_if<GgufFile>(&file);
  ModelConfig config =
      gguf ? family.gguf_config(*gguf) : family.hf_config(std::get<HfFolder>(file).config());
  config.family = family.name;
  return config;
}

DType kv_dtype_of(const Program& program) {
  const auto linear = std::ranges::find(program.ops, &ops::kLinear, &Op::def);
  BRAID_CHECK(linear != program.ops.end(), "{} has no linear", program.name);
  const DType weights = program.value(linear->inputs[1]).type.dtype;
  return is_float(weights) ? weights : DType::f16;
}

// Tables that some converters leave in a file and that the engine computes itself.
bool is_derived(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

Model::Model(const std::string& path)
    : file_(open_model_file(path)),
      family_(family_of(*file_)),
      config_(read_config(*file_, family_)) {
  const Program program = smallest_forward();
  check_weights(program);
  default_kv_dtype_ = kv_dtype_of(program);
}

Model::Model(const ModelShape& shape, uint64_t seed)
    : random_(std::make_unique<RandomWeights>(shape, seed)),
      family_(*shape.family),
      config_(shape.config) {
  for (const auto& [name, tensor] : random_->tensors()) {
    if (name == "lm_head" && config_.tied_head) continue;
    parameters_ += tensor.shape.elems();
    weight_bytes_ += bytes_of(tensor.dtype, tensor.shape.elems());
  }
  default_kv_dtype_ = kv_dtype_of(smallest_forward());
}

const ModelFile& Model::file() const {
  BRAID_CHECK(file_.has_value(), "a model of random weights has no file");
  return *file_;
}

std::string Model::file_name(std::string_view canonical) const {
  if (canonical == "lm_head" && config_.tied_head) canonical = "token_embd";
  return std::holds_alternative<GgufFile>(*file_) ? family_.gguf_name(canonical)
                                                  : family_.hf_name(canonical);
}

TensorView Model::weight(std::string_view canonical) const {
  if (random_) {
    const bool tied = canonical == "lm_head" && config_.tied_head;
    return random_->get(tied ? "token_embd" : canonical);
  }
  return source().get(file_name(canonical));
}

int64_t Model::weight_bytes(std::string_view canonical) const {
  if (!random_) return weight(canonical).bytes();
  const RandomWeights::Tensor& tensor = random_->tensors().find(canonical)->second;
  return bytes_of(tensor.dtype, tensor.shape.elems());
}

Program Model::forward(const ForwardShape& shape) const {
  return family_.forward(config_, shape, [this](std::string_view name) {
    return random_ ? random_->tensors().find(name)->second.dtype : weight(name).dtype;
  });
}

Program Model::smallest_forward() const {
  return forward({{1, 1, 1}, 1, 1, 1, DType::f32});
}

void Model::check_weights(const Program& program) {
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

}  // namespace braid
