#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/io/tokenizer.h"

namespace braid {

// Collects the text of an answer piece by piece and finds the stop text that comes first in it.
// Gives out text as soon as it cannot become part of a stop text any more.
class StopText {
 public:
  // With `include` the stop text that ends the answer is part of it.
  StopText(std::vector<std::string> stops, bool include);

  // Text that is certain now. After a stop text was found there is no more.
  std::string push(std::string_view piece);
  // The answer ends without a stop text: what was held back.
  std::string finish();

  // The stop text that ended the answer.
  const std::optional<std::string>& found() const { return found_; }

 private:
  const std::vector<std::string> stops_;
  const bool include_;
  std::string held_;  // text not given out yet
  std::optional<std::string> found_;
};

}  // namespace braid
