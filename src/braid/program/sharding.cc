#include "braid/program/sharding.h"

#include <fmt/format.h>

namespace braid {

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::replicated:
      return "replicated";
    case Placement::Kind::partial:
      return "partial(sum)";
    case Placement::Kind::shard:
      break;
  }
  std::string out = fmt::format("shard({}:", placement.dim);
  for (const Range& part : placement.parts) out += fmt::format(" {}..{}", part.begin, part.end);
  return out + ")";
}

std::vector<Range> scale_parts(const std::vector<Range>& parts, int64_t unit) {
  std::vector<Range> scaled;
  for (const Range& part : parts) scaled.push_back({part.begin * unit, part.end * unit});
  return scaled;
}

}  // namespace braid
