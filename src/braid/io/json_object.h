#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

// The fields of a JSON object out of a file (config.json, say), read by name and type, with errors
// that name the file, the field, the value and the type wanted. A field that is null counts as
// absent. Copying is cheap: the parsed text is shared.
class JsonObject {
 public:
  // Fails with kMalformed if `value` is no object. `origin` names the value in messages.
  JsonObject(std::string origin, nlohmann::json value);
  // A JSON file, read as read_json_file does.
  static JsonObject read(const std::string& path);

  const nlohmann::json& value() const { return *value_; }
  std::vector<std::string> keys() const;
  bool contains(std::string_view key) const;

  // T is bool, int64_t, double, std::string, or a std::vector of these; an integer serves as a
  // double, and a lone value as a list. All fail with kMalformed if the field holds another value;
  // get() fails with kNotFound without the field.
  template <class T>
  std::optional<T> find(std::string_view key) const;
  template <class T>
  T get(std::string_view key) const;
  template <class T>
  T get_or(std::string_view key, T otherwise) const {
    auto value = find<T>(key);
    return value ? *std::move(value) : std::move(otherwise);
  }
  // A field that is an object itself, "rope_scaling" say.
  std::optional<JsonObject> object(std::string_view key) const;

 private:
  JsonObject(std::string origin, std::shared_ptr<const nlohmann::json> value);
  const nlohmann::json* field(std::string_view key) const;  // nullptr: absent or null

  std::string origin_;
  std::shared_ptr<const nlohmann::json> value_;
};

}  // namespace braid
