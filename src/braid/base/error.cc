#include "braid/base/error.h"

namespace braid {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kMalformed:
      return "malformed";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kResource:
      return "resource exhausted";
    case ErrorCode::kDeadline:
      return "deadline exceeded";
    case ErrorCode::kAborted:
      return "aborted";
  }
  return "unknown";
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw std::logic_error(fmt::format("{}:{}: broken invariant: {}{}{}", file, line, condition,
                                     message.empty() ? "" : ": ", message));
}

}  // namespace braid
