#include "braid/fabric/peer/describe_expired.h"

#include "braid/base/error.h"

namespace braid::fabric {

std::string describe_expired(int rank, const WaitReport& report, const std::string& tag) {
  return fmt::format(
      "rank {}: waited {:.3g} s on the device for '{}' from rank {}: expected {}, seen {}", rank,
      static_cast<double>(report.waited_ns) * 1e-9, tag, report.from, report.expected, report.seen);
}

}  // namespace braid::fabric
