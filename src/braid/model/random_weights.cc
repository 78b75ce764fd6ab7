#include "braid/model/random_weights.h"

#include <cmath>
#include <numbers>

#include "braid/base/error.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

constexpr float kStddev = 0.02f;

// The finalizer of SplitMix64, over a counter.
uint64_t mixed(uint64_t seed, uint64_t index) {
  uint64_t z = seed + index * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Box-Muller: an even index and the odd one after it share two uniform numbers.
float normal(uint64_t seed, uint64_t index) {
  const uint64_t bits = mixed(seed, index / 2 + 1);
  const float u = (static_cast<float>(bits >> 40) + 1.f) * 0x1p-24f;
  const float angle = std::numbers::pi_v<float> * static_cast<float>(bits & 0xffffff) * 0x1p-23f;
  return std::sqrt(-2.f * std::log(u)) * (index % 2 ? std::sin(angle) : std::cos(angle));
}

}  // namespace

RandomWeights::RandomWeights(const ModelShape& shape, uint64_t seed) {
  if (!is_float(shape.weight_dtype)) {
    fail(ErrorCode::kUnsupported, "random weights of type {}, allowed are f32, f16 and bf16",
         name(shape.weight_dtype));
  }
  const Program program = shape.forward({{1, 1, 1}, 1, 1, 1, DType::f32});
  uint64_t index = 0;
  for (const Value& value : program.values) {
    if (value.kind != ValueKind::weight) continue;
    Tensor tensor{value.type.dtype, value.type.shape, mixed(seed, index++), {0, kStddev}};
    if (value.type.shape.rank() == 1) tensor.draw = {value.name.ends_with(".bias") ? 0.f : 1.f, 0};
    tensors_.emplace(value.name, tensor);
  }
  if (shape.config.tied_head) tensors_["lm_head"] = tensors_["token_embd"];
}

TensorView RandomWeights::get(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    fail(ErrorCode::kNotFound, "the random model has no weight '{}'", name);
  }
  const Tensor& tensor = it->second;
  const std::lock_guard lock(mutex_);
  auto& bytes = made_[it->first];
  const TensorView packed = make_view(nullptr, tensor.dtype, tensor.shape);
  const bool fresh = bytes.empty();
  if (fresh) bytes.resize(static_cast<size_t>(packed.bytes()));
  const TensorView view = make_view(bytes.data(), tensor.dtype, tensor.shape);
  if (!fresh) return view;
  std::vector<float> row(static_cast<size_t>(view.cols()));
  for (int64_t r = 0; r < view.rows(); ++r) {
    for (size_t c = 0; c < row.size(); ++c) {
      const uint64_t at = static_cast<uint64_t>(r * view.cols()) + c;
      row[c] = tensor.draw.mean;
      if (tensor.draw.stddev > 0) row[c] += tensor.draw.stddev * normal(tensor.seed, at);
    }
    quantize_row(tensor.dtype, row.data(), view.row(r), view.cols());
  }
  return view;
}

}  // namespace braid
