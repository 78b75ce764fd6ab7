#include "braid/kernels/cpu/comm/pieces.h"

#include <algorithm>
#include <cmath>

namespace braid::cpu {

// n pieces expose seconds / n and cost n * kPieceSeconds.
int64_t choose_pieces(double bytes, const Link& link) {
  constexpr double kPieceSeconds = 50e-6;
  if (link.bytes_per_second <= 0) return 1;
  const double seconds = bytes / link.bytes_per_second;
  return std::clamp<int64_t>(std::llround(std::sqrt(seconds / kPieceSeconds)), 1, 64);
}

}  // namespace braid::cpu
