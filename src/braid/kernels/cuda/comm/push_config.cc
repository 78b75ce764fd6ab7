#include "braid/kernels/cuda/comm/push_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/math.h"

namespace braid::cuda {
namespace {

constexpr int64_t kBytesPerCta = 64 << 10;

}  // namespace

std::string to_string(const PushConfig& config) {
  return config.ctas > 0 ? fmt::format("{} CTAs", config.ctas) : "copy engines";
}

PushConfig choose(const PushDesc& desc, int sms) {
  if (!desc.words || desc.across_machines || desc.computes_beside || desc.pieces < 1 ||
      desc.pieces > kMaxPushPieces) {
    return {};
  }
  // Small pieces get a CTA each: their loads and stores are under way together.
  const int64_t ctas = std::max(ceil_div(desc.bytes, kBytesPerCta), desc.pieces);
  return {static_cast<int>(std::min<int64_t>(ctas, sms))};
}

}  // namespace braid::cuda
