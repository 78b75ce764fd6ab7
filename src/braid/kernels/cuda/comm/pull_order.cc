#include "braid/kernels/cuda/comm/pull_order.h"

#include <algorithm>

namespace braid::cuda {

bool shares_no_port(std::span<const PulledFrom> before, std::span<const PulledFrom> pull) {
  return std::ranges::all_of(pull, [&](const PulledFrom& from) {
    return std::ranges::count(before, from.peer, &PulledFrom::peer) > 0 ||
           std::ranges::count(before, from.link, &PulledFrom::link) == 0;
  });
}

}  // namespace braid::cuda
