#include "braid/engine/diffusion/random_source.h"

namespace braid {

RandomSource::RandomSource(std::string origin, std::span<const Program> programs, uint64_t seed)
    : origin_(std::move(origin)), weights_(programs, seed) {}

std::optional<TensorView> RandomSource::find(std::string_view name) const {
  if (!weights_.tensors().contains(name)) return {};
  return weights_.get(name);
}

std::optional<TensorType> RandomSource::find_type(std::string_view name) const {
  const auto at = weights_.tensors().find(name);
  if (at == weights_.tensors().end()) return {};
  return TensorType{at->second.dtype, at->second.shape};
}

std::vector<TensorInfo> RandomSource::tensors() const {
  std::vector<TensorInfo> out;
  for (const auto& [tensor, made] : weights_.tensors()) {
    const TensorType type{made.dtype, made.shape};
    out.push_back({tensor, name(made.dtype), {made.shape.begin(), made.shape.end()}, type.bytes()});
  }
  return out;
}

std::string RandomSource::description() const {
  return fmt::format("random weights, {} tensors", weights_.tensors().size());
}

}  // namespace braid
