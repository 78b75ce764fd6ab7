#include "braid/engine/device_choice.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid {

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string why_no_gpu(const GpuState& state) {
  if (!state.built) return "this build has no CUDA";
  if (state.gpus > 0) return {};
  if (state.driver_version == 0) return "this machine has no NVIDIA driver";
  // Within a major version older drivers serve newer builds.
  if (state.driver_version / 1000 < state.runtime_version / 1000) {
    return fmt::format("the NVIDIA driver is too old: it serves CUDA {}, this build is of CUDA {}",
                       cuda_version(state.driver_version), cuda_version(state.runtime_version));
  }
  if (state.hidden) return "CUDA_VISIBLE_DEVICES leaves no GPU";
  if (!state.error.empty()) return "CUDA finds no GPU: " + state.error;
  return "this machine has no NVIDIA GPU";
}

DeviceChoice choose_device(std::string_view text, int ranks, const GpuState& state) {
  const std::string why = why_no_gpu(state);
  if (text == "auto") {
    if (!why.empty()) return {{}, why};
    if (state.gpus >= ranks) return {{.cuda = true, .ids = {}}, {}};
    return {{},
            fmt::format("{} ranks and {} GPU{}", ranks, state.gpus, state.gpus == 1 ? "" : "s")};
  }
  const DeviceSpec device = parse_device(text);
  if (!device.cuda) return {device, {}};
  if (!why.empty()) {
    fail(state.built ? ErrorCode::kResource : ErrorCode::kUnsupported,
         "--device {}: {} (--device cpu computes without)", text, why);
  }
  const int highest = device.ids.empty() ? ranks - 1 : std::ranges::max(device.ids);
  if (highest >= state.gpus) {
    fail(ErrorCode::kResource, "--device {}: {} GPU{} (cuda:0{}), wanted is cuda:{}", text,
         state.gpus, state.gpus == 1 ? " is there" : "s are there",
         state.gpus == 1 ? "" : fmt::format(" to cuda:{}", state.gpus - 1), highest);
  }
  return {device, {}};
}

}  // namespace braid
