#include "braid/kernels/cuda/relay/relay_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/math.h"
#include "braid/kernels/cuda/relay/relay_layout.h"

namespace braid::cuda {
namespace {

// Each CTA has at least a pair of outputs in each linear: no CTA can run ahead of its readers.
int64_t ctas_for(const RelayLinearShape& shape, const RelayDevice& device) {
  return std::min<int64_t>(device.num_sms, shape.units / 2);
}

bool has_blocks(const RelayLinearShape& shape) {
  return shape.weights[0] != DType::bf16;
}

// Sums for bf16: copies plus rows, because each weight's last copy may be short. Sums for tiles:
// each warp's, plus each weight's short last tile.
int64_t sums_of(const RelayLinearShape& shape, int64_t ctas) {
  const int64_t rows = 2 * ceil_div(shape.units / 2, ctas) * (shape.gated ? 2 : 1);
  if (!has_blocks(shape))
    return ceil_div(rows * 2 * shape.k, kRelaySlotBytes) + kRelayWeights + rows;
  return (ceil_div(rows, kRelayTileRows) + kRelayWeights) * kRelayTileRows * kRelayWarps;
}

}  // namespace

bool relay_takes(DType weights) {
  return weights == DType::bf16 || is_quantized(weights);
}

bool relay_takes(const RelayLinearShape& s, const RelayDevice& device) {
  if (device.compute_capability != 90 || s.k % 8 != 0 || s.units % 2 != 0 || s.units < 2) {
    return false;
  }
  for (const DType w : s.weights) {
    if (!relay_takes(w) || s.k % info(w).block_elems != 0) return false;
    if (w != DType::bf16 && !has_blocks(s)) return false;
  }
  if (s.gated && s.weights[0] != s.weights[1]) return false;
  if (s.normed && s.k > kRelayMaxNorm) return false;
  const auto sums = static_cast<int>(sums_of(s, ctas_for(s, device)));
  const auto x = static_cast<int>(relay_x_bytes(s.k, has_blocks(s)));
  return RelayLayout(x, sums, kRelayWarps).bytes <= device.smem_per_cta;
}

bool relay_takes(const RelayAttentionShape& s, const RelayDevice& device) {
  return device.compute_capability == 90 && (s.head_dim == 64 || s.head_dim == 128) &&
         s.group >= 1 && s.group <= kRelayMaxGroup && s.kv_heads >= 1 && s.page_size >= 16 &&
         relay_keys(s.head_dim) % relay_box(s.head_dim, s.page_size) == 0 &&
         s.page_size % relay_box(s.head_dim, s.page_size) == 0;
}

std::optional<RelayConfig> choose_relay(std::span<const RelayLinearShape> linears,
                                        std::span<const RelayAttentionShape> attention,
                                        const RelayDevice& device) {
  if (linears.size() + attention.size() < kRelayMinSteps || linears.empty()) return {};
  RelayConfig config{.ctas = device.num_sms, .blocks = std::ranges::any_of(linears, has_blocks)};
  for (const RelayLinearShape& s : linears) {
    if (!relay_takes(s, device)) return {};
    config.ctas = std::min(config.ctas, static_cast<int>(ctas_for(s, device)));
    config.x_bytes = std::max(config.x_bytes, static_cast<int>(relay_x_bytes(s.k, has_blocks(s))));
    if (s.normed && s.k > kRelayFewNorm) config.norm = kRelayMaxNorm;
    config.ranked |= s.summed;
  }
  for (const RelayLinearShape& s : linears) {
    config.sums = std::max(config.sums, static_cast<int>(sums_of(s, config.ctas)));
  }
  for (const RelayAttentionShape& s : attention) {
    // A CTA has keys of at most two heads.
    if (!relay_takes(s, device) || s.kv_heads > config.ctas) return {};
    config.head_dim = s.head_dim;
    config.group = s.group;
    config.x_bytes = std::max(config.x_bytes, RelayAttentionLayout(s.head_dim, config.group).bytes);
  }
  // Each producer has as many as the others.
  for (config.slots = kRelayMaxSlots; relay_in_flight(config.slots) >= kRelayInFlightBesideWords;
       config.slots -= kRelayProducers) {
    config.shared_bytes = RelayLayout(config.x_bytes, config.sums, config.slots).bytes;
    if (config.shared_bytes <= device.smem_per_cta) return config;
  }
  return {};
}

std::vector<int32_t> relay_parts(int32_t rows) {
  std::vector<int32_t> parts;
  for (int32_t left = rows; left > 0; left -= parts.back()) {
    const int32_t half = (left / 2 + 1) / 2 * 2;  // the last two are alike
    parts.push_back(left <= kRelayLongRows ? left : std::min(kRelayLongRows, half));
  }
  return parts;
}

std::string to_string(const RelayConfig& c) {
  return fmt::format("relay {} x {} slots{}{}{}", c.ctas, c.slots, c.blocks ? " of blocks" : "",
                     c.head_dim > 0 ? fmt::format(", heads of {} x {}", c.group, c.head_dim) : "",
                     c.ranked ? ", over ranks" : "");
}

}  // namespace braid::cuda
