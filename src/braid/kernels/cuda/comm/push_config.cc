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
  return {static_cast<int>(std::clamp<int64_t>(ceil_div(desc.bytes, kBytesPerCta), 1, sms))};
}

}  // namespace braid::cuda
