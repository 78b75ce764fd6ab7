#include "braid/schedule/communication_gain.h"

#include <fmt/format.h>

#include <cmath>

namespace braid {

std::optional<double> CommunicationGain::share() const {
  constexpr double kNothing = 1e-9;  // of a step: sums are not exact
  const double cost = sequential - without;
  if (!(cost > kNothing * sequential)) return {};
  return (sequential - seconds) / cost;
}

std::string to_string(const CommunicationGain& g) {
  const std::string speed = fmt::format("{:.2f}x of sequential", g.sequential / g.seconds);
  const std::optional<double> share = g.share();
  if (!share) return fmt::format("{}, where communication costs nothing", speed);
  return fmt::format("{}, which is {:.0f}% of what free communication would give ({:.2f}x)", speed,
                     std::round(*share * 100) + 0.0, g.sequential / g.without);
}

}  // namespace braid
