#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace braid {

// A place in a model folder's JSON document, read with messages that name the place.
class JsonNode {
 public:
  using Json = nlohmann::json;
  // The value must outlive the node.
  // A place that ends in ':' is a file, the others are "file: field.field[index]".
  JsonNode(const Json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const Json& value() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return value_->is_null(); }

  // A field of an object; null without the field.
  JsonNode operator[](std::string_view key) const;
  JsonNode at(size_t index) const;  // of an array
  size_t array_size() const;        // fails for other values than an array; 0 for null
  const Json::object_t& object() const;

  // Fail with kMalformed where the value has another type; null gives `otherwise`.
  bool boolean(bool otherwise) const;
  const std::string& text() const;
  const std::string& text(const std::string& otherwise) const;
  // In [0, limit); fails for an id outside this range.
  int32_t id(int64_t limit) const;

  std::string shown() const;  // the value for a message, cut short
  [[noreturn]] void expected(std::string_view what) const;
  // Fails with kUnsupported: the value, and the known values.
  [[noreturn]] void unsupported(std::string_view known) const;

 private:
  const Json* value_;
  std::string place_;
};

// Parses a document whose top is an object; fails with kMalformed, naming `name` and the byte.
nlohmann::json parse_json_object(std::string_view text, std::string_view name);

}  // namespace braid
