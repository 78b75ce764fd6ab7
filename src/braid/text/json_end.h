#pragma once

#include <string_view>

namespace braid {

// Finds the end of the JSON object or list that a text begins with; the text may grow between
// calls. Counts brackets outside strings: a parser has to check that the text is JSON.
class JsonEnd {
 public:
  enum class Found { more, end, broken };

  static constexpr int kMaxDepth = 64;

  // `text`: all so far, beginning with { or [.
  Found find(std::string_view text) {
    if (at_ > 0 && depth_ == 0) return Found::end;
    for (; at_ < text.size(); ++at_) {
      const char c = text[at_];
      if (escaped_) {
        escaped_ = false;
      } else if (string_) {
        escaped_ = c == '\\';
        string_ = c != '"';
      } else if (c == '"') {
        string_ = true;
      } else if (c == '{' || c == '[') {
        if (++depth_ > kMaxDepth) return Found::broken;
      } else if ((c == '}' || c == ']') && --depth_ == 0) {
        ++at_;
        return Found::end;
      }
    }
    return Found::more;
  }
  size_t end() const { return at_; }  // behind the last bracket

 private:
  size_t at_ = 0;
  int depth_ = 0;
  bool string_ = false, escaped_ = false;
};

}  // namespace braid
