#include "braid/engine/stop_text.h"

#include <algorithm>

namespace braid {

bool StopText::push(std::string_view piece) {
  text_ += piece;
  size_t first = std::string::npos;
  size_t hold = 0;  // bytes at the end that may be the start of a stop text
  for (const std::string& stop : stops_) {
    first = std::min(first, text_.find(stop, given_ - std::min(given_, stop.size())));
    for (size_t n = std::min(stop.size() - 1, text_.size()); n > hold; --n) {
      if (text_.ends_with(std::string_view(stop).substr(0, n))) hold = n;
    }
  }
  if (first == std::string::npos) return give(text_.size() - hold);
  text_.resize(first);
  give(first);
  return false;
}

void StopText::finish(std::string_view rest) {
  if (push(rest)) give(text_.size());
}

bool StopText::give(size_t end) {
  if (end <= given_) return true;
  const std::string_view fresh = std::string_view(text_).substr(given_, end - given_);
  given_ = end;
  return !on_text_ || on_text_(fresh);
}

}  // namespace braid
