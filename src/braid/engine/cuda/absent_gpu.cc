#include "braid/engine/absent_gpu.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "braid/kernels/cuda/register.h"

namespace braid {
namespace {

bool is_hopper(const Profile& profile) {
  constexpr std::array kNames = {"h20", "h100", "h200", "h800", "gh200"};
  std::string words = " ";  // an H1000 is no H100
  for (unsigned char c : profile.name + " " + profile.device + " ") {
    words += std::isalnum(c) ? static_cast<char>(std::tolower(c)) : ' ';
  }
  return std::ranges::any_of(kNames, [&](const char* name) {
    return words.find(fmt::format(" {} ", name)) != std::string::npos;
  });
}

}  // namespace

std::unique_ptr<KernelCatalog> kernels_of_absent_gpu(const Profile& profile) {
  if (profile.shared_units) return nullptr;
  auto table = std::make_unique<cuda::KernelTable>(
      cuda::DeviceInfo{.name = profile.name,
                       .compute_capability = is_hopper(profile) ? 90 : 80,
                       .num_sms = static_cast<int>(profile.units)});
  cuda::add_cuda_kernels(*table);
  return table;
}

}  // namespace braid
