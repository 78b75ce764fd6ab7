#include "braid/engine/stop_text.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid {

StopText::StopText(std::vector<std::string> stops, bool include)
    : stops_(std::move(stops)), include_(include) {
  for (const std::string& stop : stops_) BRAID_CHECK(!stop.empty(), "an empty stop text");
}

std::string StopText::push(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  size_t at = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = held_.find(stop);
    if (begin < at || (begin == at && begin != std::string::npos && stop.size() < found_->size())) {
      at = begin;
      found_ = stop;
    }
  }
  if (found_) {
    held_.resize(at + (include_ ? found_->size() : 0));
    return std::exchange(held_, {});
  }
  // The longest end of the text that may begin a stop text is held back.
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) hold = n;
    }
  }
  std::string certain = held_.substr(0, held_.size() - hold);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopText::finish() {
  return std::exchange(held_, {});
}

}  // namespace braid
