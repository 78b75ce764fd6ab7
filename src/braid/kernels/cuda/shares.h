#pragma once

#include <cstdint>

#include "braid/kernels/cuda/host_device.h"

namespace braid::cuda {

// [0, total) dealt to parts in consecutive ranges, with lengths that differ by at most 1.
struct Shares {
  int32_t each;
  int32_t more;  // number of longer parts, at the front

  Shares() = default;
  BRAID_HOST_DEVICE Shares(int32_t total, int32_t parts) : Shares(total, parts, total / parts) {}
  // `each` = total / parts, where the caller has the quotient without a division.
  BRAID_HOST_DEVICE Shares(int32_t total, int32_t parts, int32_t each)
      : each(each), more(total - each * parts) {}
  BRAID_HOST_DEVICE int32_t begin(int32_t part) const {
    return part * each + (part < more ? part : more);
  }
  BRAID_HOST_DEVICE int32_t end(int32_t part) const { return begin(part + 1); }
  BRAID_HOST_DEVICE int32_t owner(int32_t i) const {
    const int32_t longer = more * (each + 1);
    return i < longer ? i / (each + 1) : more + (i - longer) / each;
  }
};

}  // namespace braid::cuda
