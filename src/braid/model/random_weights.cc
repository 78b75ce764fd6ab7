#include "braid/model/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
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

// Box-Muller: indices 2 * pair and 2 * pair + 1 share two uniform numbers.
std::array<float, 2> normals(uint64_t seed, uint64_t pair) {
  const uint64_t bits = mixed(seed, pair + 1);
  const float u = (static_cast<float>(bits >> 40) + 1.f) * 0x1p-24f;
  const float angle = std::numbers::pi_v<float> * static_cast<float>(bits & 0xffffff) * 0x1p-23f;
  const float radius = std::sqrt(-2.f * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Of `count` neighbouring integers, each as likely as the others.
float deviation_of(int count) {
  return std::sqrt(static_cast<float>(count * count - 1) / 12);
}

// Scales for integers 0 .. count - 1 in steps of d, centered on zero.
template <class Block>
void set_scale(Block& b, int count, float stddev) {
  b.d = to_f16(stddev / deviation_of(count));
  if constexpr (requires { b.m; }) b.m = to_f16(-to_float(b.d) * static_cast<float>(count - 1) / 2);
}

// The same for formats with a scale and a minimum per group: all are 8.
template <class Block>
void set_scales(Block& b, int count, float stddev) {
  std::fill_n(b.scales, 8, uint8_t{8});
  std::fill_n(b.scales + 8, 4, uint8_t{0x88});
  b.d = to_f16(stddev / deviation_of(count) / 8);
  b.dmin = to_f16(to_float(b.d) * static_cast<float>(count - 1) / 2);
}

// Random bits, but for the scales.
void make_scales(DType dtype, std::byte* row, int64_t blocks, float stddev) {
  const auto each = [&](auto* b, const auto& set) { std::for_each_n(b, blocks, set); };
  switch (dtype) {
    case DType::q4_0:
      return each(reinterpret_cast<BlockQ4_0*>(row), [&](auto& b) { set_scale(b, 16, stddev); });
    case DType::q4_1:
      return each(reinterpret_cast<BlockQ4_1*>(row), [&](auto& b) { set_scale(b, 16, stddev); });
    case DType::q5_0:
      return each(reinterpret_cast<BlockQ5_0*>(row), [&](auto& b) { set_scale(b, 32, stddev); });
    case DType::q5_1:
      return each(reinterpret_cast<BlockQ5_1*>(row), [&](auto& b) { set_scale(b, 32, stddev); });
    case DType::q8_0:
      return each(reinterpret_cast<BlockQ8_0*>(row), [&](auto& b) { set_scale(b, 256, stddev); });
    case DType::q4_k:
      return each(reinterpret_cast<BlockQ4_K*>(row), [&](auto& b) { set_scales(b, 16, stddev); });
    case DType::q5_k:
      return each(reinterpret_cast<BlockQ5_K*>(row), [&](auto& b) { set_scales(b, 32, stddev); });
    case DType::q6_k:
      return each(reinterpret_cast<BlockQ6_K*>(row), [&](auto& b) {
        std::fill_n(b.scales, 16, int8_t{8});
        b.d = to_f16(stddev / deviation_of(64) / 8);
      });
    default:
      BRAID_CHECK(false, "{} has no blocks", name(dtype));
  }
}

void fill_blocks(const TensorView& view, uint64_t seed, float stddev) {
  const int64_t bytes = view.bytes();
  for (int64_t at = 0; at < bytes; at += 8) {
    const uint64_t bits = mixed(seed, static_cast<uint64_t>(at / 8));
    std::memcpy(view.data + at, &bits, std::min<int64_t>(8, bytes - at));
  }
  make_scales(view.dtype, view.data, bytes / info(view.dtype).block_bytes, stddev);
}

}  // namespace

RandomWeights::RandomWeights(const ModelShape& shape, uint64_t seed) {
  if (!is_float(shape.weight_dtype) && !is_quantized(shape.weight_dtype)) {
    fail(ErrorCode::kUnsupported, "random weights of type {} (a float type or blocks)",
         name(shape.weight_dtype));
  }
  const Program program = shape.forward({{1, 1, 1}, 1, 1, 1, DType::f32});
  uint64_t index = 0;
  for (const Value& value : program.values) {
    if (value.kind != ValueKind::weight) continue;
    Tensor tensor{value.type.dtype, value.type.shape, mixed(seed, index++), {0, kStddev}};
    const int64_t block = info(tensor.dtype).block_elems, cols = tensor.shape[-1];
    if (cols % block != 0) {
      fail(ErrorCode::kInvalidArgument, "{}: rows of {} elements are no whole blocks of {} ({})",
           value.name, cols, name(tensor.dtype), block);
    }
    if (value.type.shape.rank() == 1) tensor.draw = {value.name.ends_with(".bias") ? 0.f : 1.f, 0};
    tensors_.emplace(value.name, tensor);
  }
  if (shape.config.tied_head) tensors_["lm_head"] = tensors_["token_embd"];
}

RandomWeights::RandomWeights(std::span<const Program> programs, uint64_t seed) {
  for (const Program& program : programs) {
    for (const Value& value : program.values) {
      if (value.kind != ValueKind::weight) continue;
      Tensor tensor{
          value.type.dtype, value.type.shape, random_seed(seed, value.name), {0, kStddev}};
      if (tensor.shape.rank() == 1) tensor.draw = {value.name.ends_with(".bias") ? 0.f : 1.f, 0};
      tensors_.emplace(value.name, tensor);
    }
  }
}

uint64_t random_seed(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return mixed(seed + hash, 0);
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
  if (fresh) bytes.resize(packed.bytes());
  TensorView view = make_view(bytes.data(), tensor.dtype, tensor.shape);
  if (view.shape.rank() == 3) {
    auto& matrices = matrices_[it->first];
    for (int64_t i = std::ssize(matrices); i < view.shape[0]; ++i) {
      matrices.push_back(matrix(view, i).data);
    }
    view.matrices = matrices.data();
  }
  if (!fresh) return view;
  if (is_quantized(view.dtype)) {
    fill_blocks(view, tensor.seed, tensor.draw.stddev);
    return view;
  }
  std::vector<float> row(view.cols(), tensor.draw.mean);
  std::array<float, 2> pair{};
  uint64_t at = 0;  // in the tensor
  for (int64_t r = 0; r < view.rows(); ++r) {
    for (size_t c = 0; c < row.size() && tensor.draw.stddev > 0; ++c, ++at) {
      if (at % 2 == 0) pair = normals(tensor.seed, at / 2);
      row[c] = tensor.draw.mean + tensor.draw.stddev * pair[at % 2];
    }
    quantize_row(tensor.dtype, row.data(), view.row(r), view.cols());
  }
  return view;
}

}  // namespace braid
