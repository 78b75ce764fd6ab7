#include "braid/model/model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

#include "braid/ops/linear.h"
#include "braid/tensor/quant.h"

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

// Whether two matrices differ in any of a few rows, spread over all: a matrix that is no copy
// differs everywhere. Reads no more than these rows.
bool rows_differ(const TensorView& x, const TensorView& y) {
  if (x.dtype != y.dtype || x.shape != y.shape) return true;
  constexpr int64_t kRows = 64;
  const int64_t step = std::max<int64_t>(1, x.rows() / kRows);
  for (int64_t i = 0; i < x.rows(); i += step) {
    if (std::memcmp(x.row(i), y.row(i), x.row_bytes) != 0) return true;
  }
  return false;
}

// Fails if the missing weight `name` is replaced by tensors of other engines'
// quantizers.
void check_not_packed(const WeightSource& source, const std::string& name) {
  constexpr auto kPacked = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"qweight", "GPTQ or AWQ"},
      {"weight_packed", "compressed-tensors"},
      {"B", "Marlin"},
  });
  const std::string stem = name.substr(0, name.rfind('.') + 1);
  for (const std::string_view other : source.names()) {
    for (const auto& [suffix, what] : kPacked) {
      if (other != stem + std::string(suffix)) continue;
      fail(ErrorCode::kUnsupported,
           "{}: tensor '{}' is one of {}, which is not supported: use the model in f32, f16 or "
           "bf16, or a GGUF file",
           source.path(), other, what);
    }
  }
}

// A weight with a single row, [1, C].
bool is_row(std::string_view canonical) {
  return canonical.ends_with(".shared_gate");
}

// A bias for the choice of experts: NaN or infinity would hide its expert silently.
void check_numbers(const WeightSource& source, const std::string& name) {
  const TensorView bias = source.get(name);
  std::vector<float> values(bias.shape.elems());
  dequantize_row(bias.dtype, bias.data, values.data(), std::ssize(values));
  for (size_t e = 0; e < values.size(); ++e) {
    if (std::isfinite(values[e])) continue;
    fail(ErrorCode::kMalformed, "{}: '{}' has {} for expert {}, wanted is a number", source.path(),
         name, values[e], e);
  }
}

// A tensor's layer by its name, "blk.N." or "model.layers.N."; -1: none.
int64_t layer_of(std::string_view name) {
  for (const std::string_view prefix : {"blk.", "model.layers."}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    int64_t layer = -1;
    std::from_chars(name.data(), name.data() + name.size(), layer);
    return layer;
  }
  return -1;
}

// Tables that some converters leave in a file and the engine computes itself.
bool is_derived(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("rotary_pos_emb.inv_freq");
}

}  // namespace

Model::Model(const std::string& path)
    : file_(open_model_file(path)),
      family_(family_of(*file_)),
      config_(read_config(*file_, family_)) {
  stacked_ = std::make_unique<StackedWeights>(source(), family_, config_,
                                              std::holds_alternative<GgufFile>(*file_));
  packed_ = std::make_unique<PackedWeights>(source(), family_, config_);
  find_head();
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
    count(name, {tensor.dtype, tensor.shape});
  }
  default_kv_dtype_ = kv_dtype_of(smallest_forward());
}

const ModelFile& Model::file() const {
  BRAID_CHECK(file_.has_value(), "a model of random weights has no file");
  return *file_;
}

std::string Model::file_name(std::string_view canonical) const {
  if (config_.tied_head && (canonical == "lm_head" || canonical == "token_embd")) canonical = tied_;
  return std::holds_alternative<GgufFile>(*file_) ? family_.gguf_name(canonical)
                                                  : family_.hf_name(canonical);
}

TensorView Model::weight(std::string_view canonical) const {
  if (random_) {
    const bool tied = canonical == "lm_head" && config_.tied_head;
    return random_->get(tied ? "token_embd" : canonical);
  }
  if (StackedWeights::names(canonical)) return stacked_->view(canonical);
  if (packed_) {
    if (const auto packed = packed_->find(canonical)) {
      return packed_->view(canonical, file_name(canonical), *packed);
    }
  }
  TensorView view = source().get(file_name(canonical));
  if (is_row(canonical) && view.shape.rank() == 1) view.shape = {1, view.shape[0]};
  return view;
}

TensorType Model::weight_type(std::string_view canonical) const {
  if (packed_) {
    if (const auto packed = packed_->find(canonical)) {
      return packed_->type(file_name(canonical), *packed);
    }
  }
  if (!random_) {
    return StackedWeights::names(canonical) ? stacked_->type(canonical)
                                            : source().type(file_name(canonical));
  }
  const bool tied = canonical == "lm_head" && config_.tied_head;
  const RandomWeights::Tensor& tensor =
      random_->tensors().find(tied ? "token_embd" : canonical)->second;
  return {tensor.dtype, tensor.shape};
}

int64_t Model::weight_bytes(std::string_view canonical) const {
  return weight_type(canonical).bytes();
}

void Model::count(std::string_view name, const TensorType& type) {
  const int64_t elems = type.shape.elems();
  parameters_ += elems;
  weight_bytes_ += type.bytes();
  const bool chosen = StackedWeights::names_experts(name);
  if (chosen) expert_bytes_ += type.bytes();
  active_parameters_ += chosen ? elems / config_.experts->E * config_.experts->route.top_k : elems;
}

Program Model::forward(const ForwardShape& shape) const {
  return family_.forward(config_, shape,
                         [this](std::string_view name) { return weight_type(name).dtype; });
}

Program Model::smallest_forward() const {
  return forward({{1, 1, 1}, 1, 1, 1, DType::f32});
}

// For any flag, a folder's head is the stored tensor: tied only if either tensor is
// missing.
void Model::find_head() {
  if (!config_.tied_head || !std::holds_alternative<HfFolder>(*file_)) return;
  const std::string head = family_.hf_name("lm_head"), embedding = family_.hf_name("token_embd");
  if (!source().find_type(head)) return;
  if (!source().find_type(embedding)) {
    tied_ = "lm_head";
    return;
  }
  config_.tied_head = false;
  if (rows_differ(source().get(head), source().get(embedding))) {
    config_.remarks.push_back(
        fmt::format("{}: tie_word_embeddings is true, but '{}' is stored beside '{}' and differs: "
                    "both are used",
                    source().path(), head, embedding));
  }
}

void Model::check_weights(const Program& program) {
  std::set<std::string, std::less<>> used;
  for (const Value& value : program.values) {
    if (value.kind != ValueKind::weight) continue;
    if (StackedWeights::names(value.name)) {
      const TensorType type = stacked_->type(value.name);
      if (type.shape != value.type.shape) {
        fail(ErrorCode::kMalformed, "{}: the experts '{}' have shape {}, the model wants {}",
             source().path(), stacked_->tensors(value.name)[0], to_string(type.shape),
             to_string(value.type.shape));
      }
      for (std::string& name : stacked_->tensors(value.name)) used.insert(std::move(name));
      count(value.name, type);
      continue;
    }
    if (const auto packed = packed_->find(value.name)) {
      std::string tensor = file_name(value.name);
      const TensorType type = packed_->type(tensor, *packed);
      if (type.shape != value.type.shape) {
        fail(ErrorCode::kMalformed, "{}: rows of '{}' have shape {}, the model wants {}",
             source().path(), tensor, to_string(type.shape), to_string(value.type.shape));
      }
      used.insert(std::move(tensor));
      count(value.name, type);
      continue;
    }
    const std::string name = file_name(value.name);
    if (!source().find_type(name)) check_not_packed(source(), name);
    // llama.cpp stores a shared expert's gate without the dimension of 1.
    const bool flat = is_row(value.name) && source().type(name).shape.rank() == 1;
    const TensorType type =
        source().type(name, flat ? Shape{value.type.shape[1]} : value.type.shape);
    if (!used.insert(name).second) continue;
    if (value.name.ends_with(".choice.bias")) check_numbers(source(), name);
    count(value.name, type);
  }
  int64_t skipped = 0;
  for (std::string_view name : source().names()) {
    if (used.contains(name) || is_derived(name)) continue;
    if (family_.predicts && layer_of(name) >= config_.layers) {
      ++skipped;
      continue;
    }
    fail(ErrorCode::kUnsupported, "{}: a {} model has no use for tensor '{}'", source().path(),
         family_.name, name);
  }
  if (skipped > 0) {
    config_.remarks.push_back(fmt::format(
        "{}: {} tensors of layers behind the last ({}) predict further tokens: they are "
        "not used",
        source().path(), skipped, config_.layers - 1));
  }
}

}  // namespace braid
