#include "braid/kernels/cuda/decode/decode_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/layout.h"
#include "braid/kernels/cuda/decode/plan.h"

namespace braid::cuda {
namespace {

constexpr double kBytesPerUs = 4.65e6;  // of an H200
constexpr double kUnitUs = .5;          // from a unit's arrival to the next one's, in one warp
constexpr int kReserved = 1 << 10;      // of shared memory, for each CTA on an SM
// Two CTAs on an SM start one by one, beside the end of the launch ahead.
constexpr double kLateUs = 1;  // later start of a CTA twice the size

int ctas_of(int on_sm, const DecodeDevice& device) {
  return std::min(on_sm * device.num_sms, kMaxCtas);
}

// At capacity: the time for all bytes, or for the busiest warp's units.
double estimate_us(const DecodeDesc& d, const DecodeConfig& c, const DecodeDevice& device) {
  const auto D = static_cast<int>(d.attrs.head_dim);
  const double keys =
      static_cast<double>(kv_heads_read(d).count) * d.max_sequences * d.table_stride * d.page_size;
  const double rounds = std::ceil(keys / unit_keys(D) / (static_cast<double>(c.ctas * c.warps)));
  // With fewer heads than CTAs, more CTAs mean more parts to merge.
  const int64_t heads = int64_t{kv_heads_read(d).count} * d.max_sequences;
  const bool late = c.ctas <= device.num_sms && heads >= ctas_of(2, device);
  return std::max(keys * 4 * D / kBytesPerUs, rounds * kUnitUs) + (late ? kLateUs : 0);
}

}  // namespace

bool few_tokens_each(int64_t tokens, int64_t sequences) {
  constexpr int64_t kFew = 32;
  return tokens <= std::max(kFew, sequences + sequences / 8);
}

std::vector<DecodeConfig> candidates(const DecodeDesc& desc, const DecodeDevice& device) {
  verify(desc);
  if (device.compute_capability < 80) {
    fail(ErrorCode::kUnsupported, "decode attention: compute capability {} (80 or more)",
         device.compute_capability);
  }
  const auto D = static_cast<int>(desc.attrs.head_dim);
  std::vector<DecodeConfig> out;
  const auto add = [&](int warps, int on_sm) {
    DecodeConfig c;
    c.ctas = ctas_of(on_sm, device);
    c.warps = warps;
    c.shared_bytes = DecodeShared(D, warps, desc.max_sequences).bytes;
    if (on_sm * (c.shared_bytes + kReserved) > device.shared_bytes + kReserved) return;
    c.workspace_bytes = DecodeWorkspace(D, c.ctas).bytes;
    c.cost_us = estimate_us(desc, c, device);
    out.push_back(c);
  };
  add(8, 1);
  add(4, 1);
  add(4, 2);
  if (out.empty()) {
    fail(ErrorCode::kUnsupported, "decode attention: {} does not fit {} bytes of shared memory",
         to_string(desc), device.shared_bytes);
  }
  return out;
}

DecodeConfig choose(const DecodeDesc& desc, const DecodeDevice& device) {
  const std::vector<DecodeConfig> all = candidates(desc, device);
  return *std::min_element(all.begin(), all.end(),
                           [](const auto& a, const auto& b) { return a.cost_us < b.cost_us; });
}

std::string to_string(const DecodeConfig& c) {
  return fmt::format("{} CTAs of {} warps, {} KB shared, {} KB workspace", c.ctas, c.warps,
                     c.shared_bytes >> 10, c.workspace_bytes >> 10);
}

}  // namespace braid::cuda
