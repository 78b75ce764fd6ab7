#include "braid/engine/diffusion/torch_generator.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "braid/tensor/half.h"

namespace braid {

float TorchGenerator::uniform() {
  constexpr uint32_t kMask = (1u << 24) - 1;
  return static_cast<float>(next() & kMask) * 0x1p-24f;
}

double TorchGenerator::uniform_f64() {
  constexpr uint64_t kMask = (uint64_t{1} << 53) - 1;
  const uint64_t high = next();
  return static_cast<double>(((high << 32) | next()) & kMask) * 0x1p-53;
}

double TorchGenerator::normal_f64() {
  if (kept_) return *std::exchange(kept_, std::nullopt);
  const double angle = 2 * std::numbers::pi * uniform_f64();
  const double radius = std::sqrt(-2 * std::log1p(-uniform_f64()));
  kept_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

// Uniform numbers become normals: the first 8 give the radius, the others the angle.
void TorchGenerator::fill_16(std::span<float, 16> block) {
  for (size_t j = 0; j < 8; ++j) {
    const float u1 = 1 - block[j], u2 = block[j + 8];
    const float radius = std::sqrt(-2 * std::log(u1));
    const float angle = 2 * std::numbers::pi_v<float> * u2;
    block[j] = radius * std::cos(angle);
    block[j + 8] = radius * std::sin(angle);
  }
}

void TorchGenerator::normals(std::span<float> out) {
  draw(out);
  if (type_ == DType::bf16) {
    for (float& x : out) x = to_float(to_bf16(x));
  } else if (type_ == DType::f16) {
    for (float& x : out) x = to_float(to_f16(x));
  }
}

void TorchGenerator::draw(std::span<float> out) {
  if (out.size() < 16) {
    for (float& x : out) x = static_cast<float>(normal_f64());
    return;
  }
  for (float& x : out) x = uniform();
  for (size_t i = 0; i + 16 <= out.size(); i += 16) {
    fill_16(out.subspan(i).first<16>());
  }
  if (out.size() % 16 == 0) return;
  const auto last = out.last<16>();
  for (float& x : last) x = uniform();
  fill_16(last);
}

}  // namespace braid
