#include "braid/server/schema/api_error.h"

#include <nlohmann/json.hpp>

namespace braid::server {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kMalformed:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kResource:
      return 429;
    case ErrorCode::kDeadline:
    case ErrorCode::kAborted:
      return 503;
  }
  return 500;
}

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "service_unavailable_error";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

ApiError::ApiError(const Error& error)
    : std::runtime_error(error.what()), status_(status_of(error.code())) {}

nlohmann::ordered_json ApiError::json() const {
  nlohmann::ordered_json error = {
      {"message", what()}, {"type", type_of(status_)}, {"param", nullptr}, {"code", status_}};
  if (param_) error["param"] = *param_;
  return {{"error", std::move(error)}};
}

}  // namespace braid::server
