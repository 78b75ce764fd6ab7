#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

// Cuts an answer's text, which comes piece by piece, at its first stop text. Among stop texts
// completed by the same piece the earliest begin wins, then the shortest. Gives out text as soon as
// the text cannot become part of a stop text.
class StopText {
 public:
  // No stop text is empty. With `include` the ending stop text is part of the answer.
  explicit StopText(std::vector<std::string> stops, bool include = false);

  // Text that is certain now; none after a found stop text.
  std::string push(std::string_view piece);
  // The answer ends without a stop text: returns held-back text.
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
