#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

// Collects the text of an answer: gives out what cannot become part of a stop text any more. Of
// stop texts that the same piece completes the one that begins first ends the answer.
class StopText {
 public:
  using OnText = std::function<bool(std::string_view text)>;  // false: enough

  // `stops` and `on_text`, which may be empty, outlive it.
  StopText(const std::vector<std::string>& stops, const OnText& on_text)
      : stops_(stops), on_text_(on_text) {}

  // False when a stop text was completed or the listener has had enough.
  bool push(std::string_view piece);
  // The last piece, behind which nothing comes: all of the text is given out.
  void finish(std::string_view rest);
  std::string take() { return std::move(text_); }

 private:
  bool give(size_t end);

  const std::vector<std::string>& stops_;
  const OnText& on_text_;
  std::string text_;
  size_t given_ = 0;
};

}  // namespace braid
