#include "braid/number_list.h"

#include <charconv>

#include "braid/base/error.h"

namespace braid::app {

template <class T>
std::vector<T> parse_numbers(std::string_view option, std::string_view text) {
  std::vector<T> numbers;
  if (text.empty()) return numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view piece = text.substr(begin, comma - begin);
    const char* const end = piece.data() + piece.size();
    const auto [stop, error] = std::from_chars(piece.data(), end, numbers.emplace_back());
    if (error != std::errc{} || stop != end) {
      fail(ErrorCode::kInvalidArgument, "{} '{}': '{}' is not a number", option, text, piece);
    }
    begin = comma + 1;
  }
  return numbers;
}

template std::vector<double> parse_numbers(std::string_view option, std::string_view text);
template std::vector<int> parse_numbers(std::string_view option, std::string_view text);

}  // namespace braid::app
