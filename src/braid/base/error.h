#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace braid {

// Kind of an error, for callers that react by kind (a server maps kinds to HTTP statuses).
enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that is not allowed
  kNotFound,         // a file, tensor, op or name that does not exist
  kMalformed,        // bytes or text in a broken format
  kUnsupported,      // well-formed, and not something this build can do
  kResource,         // memory, disk, or a stated limit is exhausted
  kDeadline,         // a bounded wait ran out
  kAborted,          // another rank failed first
};

std::string_view to_string(ErrorCode code);

// A mistake that a user can mend. The message names the thing, the value and the allowed range.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// A broken invariant of Braid itself: thrown as std::logic_error with the place and the condition.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace braid

#define BRAID_CHECK(condition, ...)                                                         \
  do {                                                                                      \
    if (!(condition)) [[unlikely]]                                                          \
      ::braid::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
