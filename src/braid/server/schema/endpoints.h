#pragma once

#include <span>
#include <string_view>

#include "braid/server/schema/fields.h"

namespace braid::server {

// A path of the server, for the router, /openapi.json and docs/server.md.
struct Endpoint {
  std::string_view method;
  std::string_view path;
  std::string_view summary;
  std::span<const Field> fields = {};  // in a POST's body
  bool open = false;                   // needs no API key
  std::string_view answer = "Status";  // schema of a JSON answer, in /openapi.json
  std::string_view type = {};          // any other answer's
};

std::span<const Endpoint> endpoints();

std::span<const Field> chat_fields();
std::span<const Field> completion_fields();
std::span<const Field> response_fields();
std::span<const Field> tokenize_fields();
std::span<const Field> detokenize_fields();

// The document of /openapi.json.
Json openapi(std::string_view version);

// The tables in docs/server.md.
std::string endpoint_tables();

}  // namespace braid::server
