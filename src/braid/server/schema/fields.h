#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braid/server/schema/api_error.h"

namespace braid::server {

using Json = nlohmann::ordered_json;

// JSON types that a field may have, as bits. A null value counts as absent.
enum Type : unsigned {
  kBoolean = 1,
  kInteger = 2,
  kNumber = 4,  // an integer is a number
  kString = 8,
  kArray = 16,
  kObject = 32,
  kAny = 63,
};

enum class Effect {
  used,
  accepted,  // known to clients, without effect here
  refused,   // would change the answer and is not supported: 400 unless it has a harmless value
};

// A field of a request's body: the same record makes the parser, its errors, /openapi.json and
// docs/server.md.
struct Field {
  std::string_view name;
  unsigned types = kAny;
  std::string_view meaning;
  std::string_view otherwise = {};                          // its default, as documents print it
  double least = -std::numeric_limits<double>::infinity();  // a number's
  double most = std::numeric_limits<double>::infinity();
  Effect effect = Effect::used;
  bool required = false;
  std::string_view schema = {};  // further members of the field's JSON schema
};

// A refused field; `harmless` are the values, as JSON text, that change nothing.
Field refused(std::string_view name, std::string_view harmless);
Field accepted(std::string_view name);

// A request's body, held against the endpoint's fields.
class Body {
 public:
  // Fails with ApiError 400 if the text is no JSON object, nests deeper than 32 levels, has a field
  // of another type or out of range, lacks a required field, or has a refused field.
  Body(std::string_view text, std::span<const Field> fields);

  // Fields that the endpoint does not know, for the log.
  const std::vector<std::string>& unknown() const { return unknown_; }

  const Json* find(std::string_view name) const;  // null if absent or unknown
  bool boolean(std::string_view name, bool otherwise) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
  std::optional<int64_t> integer(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  std::optional<std::string> string(std::string_view name) const;

  // [[noreturn]] 400 with the field's name.
  [[noreturn]] static void fail(std::string_view name, const std::string& message);

 private:
  Json json_;
  std::vector<std::string> unknown_;
};

// A list of ids [least, most] under a name.
std::vector<int32_t> ids_of(const Json& value, std::string_view name, int64_t vocabulary);

// An endpoint's fields as a JSON schema's properties, for /openapi.json.
Json schema_of(std::span<const Field> fields);

// The fields as rows of a Markdown table: name, type, range, default, meaning.
std::string table_of(std::span<const Field> fields);

}  // namespace braid::server
