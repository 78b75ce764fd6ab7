#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid::app {

inline constexpr const char* kNumbers = "NUMBER,...";  // in help texts

// Numbers with commas between them, of type double or int; an empty text has none. Fails with
// kInvalidArgument, naming the option: CLI11's lists pass over empty places ("0.5,").
template <class T>
std::vector<T> parse_numbers(std::string_view option, std::string_view text);

}  // namespace braid::app
