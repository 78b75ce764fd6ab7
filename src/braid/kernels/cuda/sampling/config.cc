#include "braid/kernels/cuda/sampling/config.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/sampling/params.h"

namespace braid::cuda {
namespace {

constexpr int kMaxCluster = 16;
constexpr int32_t kLeastSlice = 1024;  // below, more CTAs only mean more to wait for

size_t shared_bytes(const SamplingDesc& desc, const SamplingConfig& config) {
  return kSampleSharedBytes + sizeof(float) * static_cast<size_t>(slice_of(desc, config));
}

// Measured on an H200: a row takes 4 us, 0.05 us more for each joined CTA and 0.16 us for 1,000
// values of a slice (three times as much from the workspace). Rows queue up if the device cannot
// hold all CTAs together: one in 16 SMs is left over, as clusters stay in a GPC.
double estimate_us(const SamplingDesc& desc, const SamplingDevice& device,
                   const SamplingConfig& config) {
  const double sweep = slice_of(desc, config) * (config.staged ? 1.6e-4 : 4.8e-4);
  const size_t shared = config.staged ? shared_bytes(desc, config) : kSampleSharedBytes;
  const int64_t per_sm = 2 * shared <= static_cast<size_t>(device.shared_bytes) ? 2 : 1;
  const int64_t usable = config.cluster > 1 ? device.num_sms - device.num_sms / 16 : device.num_sms;
  const int64_t rows_together = std::max<int64_t>(1, usable / config.cluster * per_sm);
  const int64_t waves = ceil_div(desc.capacity, rows_together);
  return static_cast<double>(waves) * (4 + 0.05 * config.cluster + sweep);
}

}  // namespace

int32_t slice_of(const SamplingDesc& desc, const SamplingConfig& config) {
  return static_cast<int32_t>(round_up(ceil_div(desc.vocab, config.cluster), 32));
}

std::vector<SamplingConfig> candidates(const SamplingDesc& desc, const SamplingDevice& device) {
  if (desc.vocab < 1 || desc.vocab > kMaxVocab) {
    fail(ErrorCode::kInvalidArgument, "sampling: vocabulary of {}, allowed is 1 to {}", desc.vocab,
         kMaxVocab);
  }
  if (desc.capacity < 1 || desc.capacity > 65536) {
    fail(ErrorCode::kInvalidArgument, "sampling: {} rows, allowed is 1 to 65536", desc.capacity);
  }
  std::vector<SamplingConfig> found;
  for (int cluster = 1; cluster <= (device.compute_capability == 90 ? kMaxCluster : 1);
       cluster *= 2) {
    if (cluster > 1 && desc.vocab / cluster < kLeastSlice) break;
    SamplingConfig config{.cluster = cluster, .staged = true};
    config.staged = shared_bytes(desc, config) <= static_cast<size_t>(device.shared_bytes);
    config.cost_us = estimate_us(desc, device, config);
    found.push_back(config);
    if (config.staged && cluster == 1) {  // the plain one stays to compare with
      config.staged = false;
      config.cost_us = estimate_us(desc, device, config);
      found.push_back(config);
    }
  }
  return found;
}

SamplingConfig choose(const SamplingDesc& desc, const SamplingDevice& device) {
  const std::vector<SamplingConfig> all = candidates(desc, device);
  return *std::min_element(all.begin(), all.end(),
                           [](const auto& a, const auto& b) { return a.cost_us < b.cost_us; });
}

size_t workspace_bytes(const SamplingDesc& desc, const SamplingConfig& config) {
  if (config.staged) return 0;
  return sizeof(float) * static_cast<size_t>(desc.capacity) *
         static_cast<size_t>(round_up(desc.vocab, 4));
}

std::string to_string(const SamplingConfig& config) {
  return fmt::format("cluster {}{}", config.cluster, config.staged ? " staged" : "");
}

}  // namespace braid::cuda
