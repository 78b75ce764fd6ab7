#pragma once

#include <string_view>

#include "braid/base/error.h"

namespace braid {

// Fails with kInvalidArgument, naming option and limits, for a value outside.
inline void require_between(std::string_view option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, wanted {} to {}", option, value, least, most);
}

// Of a context, in a model with so many positions.
inline void require_positions(std::string_view option, int64_t tokens, int64_t positions) {
  if (tokens >= 2 && tokens <= positions) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, wanted 2 to {}, the model's positions", option,
       tokens, positions);
}

inline constexpr int64_t kMostTokens = int64_t{1} << 24;  // of a step or a context

constexpr int64_t kMostExpertMib = int64_t{1} << 30;  // of --expert-memory

}  // namespace braid
