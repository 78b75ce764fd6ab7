#include "braid/speed.h"

#include <fmt/format.h>

namespace braid::app {
namespace {

double per_second(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

std::string tokens(int64_t n) {
  return fmt::format("{} token{}", n, n == 1 ? "" : "s");
}

}  // namespace

Speed speed_of(const Request& request, const Generation& g) {
  return {per_second(static_cast<double>(std::ssize(request.prompt) - g.reused),
                     g.timings.prompt_seconds),
          per_second(static_cast<double>(g.ids.empty() ? 0 : g.ids.size() - 1),
                     g.timings.decode_seconds)};
}

std::string speed_line(const Request& request, const Generation& g, double before_ms) {
  const Speed speed = speed_of(request, g);
  std::string line = "prompt " + tokens(std::ssize(request.prompt));
  if (g.reused > 0) line += fmt::format(" ({} kept)", g.reused);
  line += fmt::format(", {:.1f} tokens/s; answer {}", speed.prompt, tokens(std::ssize(g.ids)));
  // A single token has no speed: it is the first.
  if (g.ids.size() > 1) line += fmt::format(", {:.1f} tokens/s", speed.decode);
  return line + fmt::format("; first token after {:.0f} ms", before_ms + g.timings.ttft_ms);
}

}  // namespace braid::app
