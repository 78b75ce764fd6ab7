#pragma once

#include <string>

#include "braid/engine/generate.h"

namespace braid::app {

// Computed tokens per second: prompt tokens with present keys do not count.
struct Speed {
  double prompt = 0;
  double decode = 0;
};
Speed speed_of(const Request& request, const Generation& generation);

// "prompt 40 tokens (30 kept), 327.6 tokens/s; answer 54 tokens, 63.0 tokens/s; first token after
// 156 ms", including the time before generate().
std::string speed_line(const Request& request, const Generation& generation, double before_ms = 0);

}  // namespace braid::app
