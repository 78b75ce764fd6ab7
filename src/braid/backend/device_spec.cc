#include "braid/backend/device_spec.h"

#include <charconv>
#include <set>

#include "braid/base/error.h"

namespace braid {

int DeviceSpec::num_gpus(int ranks) const {
  if (ids.empty()) return ranks;
  return static_cast<int>(std::set(ids.begin(), ids.end()).size());
}

DeviceSpec parse_device(std::string_view text) {
  const auto refuse = [&] {
    fail(ErrorCode::kInvalidArgument,
         "device '{}': wanted cpu, cuda, or cuda: with a GPU for each rank (cuda:0,1)", text);
  };
  if (text == "cpu") return {};
  if (text == "cuda") return {.cuda = true, .ids = {}};
  constexpr std::string_view kPrefix = "cuda:";
  if (!text.starts_with(kPrefix)) refuse();
  DeviceSpec spec{.cuda = true, .ids = {}};
  std::string_view rest = text.substr(kPrefix.size());
  while (true) {
    int id = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), id);
    if (error != std::errc{} || id < 0) refuse();
    spec.ids.push_back(id);
    rest.remove_prefix(end - rest.data());
    if (rest.empty()) return spec;
    if (rest.front() != ',') refuse();
    rest.remove_prefix(1);
  }
}

}  // namespace braid
