#pragma once

#include <string_view>

#include "braid/base/error.h"

namespace braid {

// Fails with kInvalidArgument, naming option and limits, for a value outside.
inline void require_between(std::string_view option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, wanted {} to {}", option, value, least, most);
}

inline constexpr int64_t kMostTokens = int64_t{1} << 24;  // of a step or a context

constexpr int64_t kMostExpertMib = int64_t{1} << 30;  // of --expert-memory

}  // namespace braid
