#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "braid/base/error.h"

namespace braid::server {

// An answer other than 200, as OpenAI's clients read it: {"error": {...}}.
class ApiError : public std::runtime_error {
 public:
  // `param` names the wrong field of the request, if any.
  ApiError(int status, const std::string& message, std::optional<std::string> param = {})
      : std::runtime_error(message), status_(status), param_(std::move(param)) {}

  // An engine's fault with a status for clients: a wrong argument 400, a full queue 429, an expired
  // wait or an ending engine 503, all others 500.
  explicit ApiError(const Error& error);

  int status() const { return status_; }
  nlohmann::ordered_json json() const;  // {"error": {"message", "type", "param", "code"}}

 private:
  int status_;
  std::optional<std::string> param_;
};

}  // namespace braid::server
