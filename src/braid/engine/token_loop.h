#pragma once

#include <functional>
#include <span>

#include "braid/engine/sampling.h"

namespace braid {

// One sequence that is to be continued, token by token. Its prompt is in the KV cache.
struct LoopRequest {
  std::span<const int32_t> prompt;
  SamplingParams sampling;
  int64_t limit = 0;  // tokens that may be asked for
  // Pages that hold this many tokens, in order; grows them. May be called one token ahead.
  std::function<std::span<const int32_t>(int64_t tokens)> hold;
};

// Where the next token comes from. Ends with the request that it was made for.
class TokenLoop {
 public:
  virtual ~TokenLoop() = default;
  // At most `limit` times.
  virtual SampledToken next() = 0;
};

}  // namespace braid
