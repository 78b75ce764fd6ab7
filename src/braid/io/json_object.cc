#include "braid/io/json_object.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/io/json_text.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

using nlohmann::json;

// Files state at most some hundred stop tokens or layer types; the rest of a message stays short.
std::string shown(const json& value) {
  const std::string text = value.is_structured()
                               ? std::string(value.type_name())
                               : value.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string line = braid::quoted(text, 80);
  return line.substr(1, line.size() - 2);
}

bool convert(const json& value, bool* out) {
  if (value.is_boolean()) *out = value.get<bool>();
  return value.is_boolean();
}

bool convert(const json& value, int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return false;
  *out = value.get<int64_t>();
  return true;
}

bool convert(const json& value, double* out) {
  if (value.is_number()) *out = value.get<double>();
  return value.is_number();
}

bool convert(const json& value, std::string* out) {
  if (value.is_string()) *out = value.get_ref<const std::string&>();
  return value.is_string();
}

template <class T>
bool convert(const json& value, std::vector<T>* out) {
  T element{};
  if (!value.is_array()) {
    if (!convert(value, &element)) return false;
    out->push_back(element);
    return true;
  }
  for (const json& item : value) {
    if (!convert(item, &element)) return false;
    out->push_back(element);
  }
  return true;
}

template <class T>
struct Wanted;
template <>
struct Wanted<bool> {
  static constexpr const char* kName = "true or false";
};
template <>
struct Wanted<int64_t> {
  static constexpr const char* kName = "an integer";
};
template <>
struct Wanted<double> {
  static constexpr const char* kName = "a number";
};
template <>
struct Wanted<std::string> {
  static constexpr const char* kName = "a string";
};
template <>
struct Wanted<std::vector<bool>> {
  static constexpr const char* kName = "a list of true or false";
};
template <>
struct Wanted<std::vector<int64_t>> {
  static constexpr const char* kName = "a list of integers";
};
template <>
struct Wanted<std::vector<double>> {
  static constexpr const char* kName = "a list of numbers";
};
template <>
struct Wanted<std::vector<std::string>> {
  static constexpr const char* kName = "a list of strings";
};

}  // namespace

JsonObject::JsonObject(std::string origin, nlohmann::json value)
    : JsonObject(std::move(origin), std::make_shared<const json>(std::move(value))) {}

JsonObject::JsonObject(std::string origin, std::shared_ptr<const nlohmann::json> value)
    : origin_(std::move(origin)), value_(std::move(value)) {
  if (!value_->is_object()) {
    fail(ErrorCode::kMalformed, "{}: is {}, wanted is a JSON object", origin_, shown(*value_));
  }
}

JsonObject JsonObject::read(const std::string& path) {
  return {path, read_json_file(path)};
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : value_->items()) out.push_back(key);
  return out;
}

bool JsonObject::contains(std::string_view key) const {
  return field(key) != nullptr;
}

const json* JsonObject::field(std::string_view key) const {
  const auto at = value_->find(key);
  return at == value_->end() || at->is_null() ? nullptr : &*at;
}

template <class T>
std::optional<T> JsonObject::find(std::string_view key) const {
  const json* value = field(key);
  if (value == nullptr) return std::nullopt;
  T out{};
  if (convert(*value, &out)) return out;
  fail(ErrorCode::kMalformed, "{}: {} is {}, wanted is {}", origin_, braid::quoted(key),
       shown(*value), Wanted<T>::kName);
}

template <class T>
T JsonObject::get(std::string_view key) const {
  if (auto found = find<T>(key)) return *std::move(found);
  fail(ErrorCode::kNotFound, "{}: there is no {} ({})", origin_, braid::quoted(key),
       Wanted<T>::kName);
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const json* value = field(key);
  if (value == nullptr) return std::nullopt;
  // Shares ownership of the whole text.
  return JsonObject(fmt::format("{}: {}", origin_, braid::quoted(key)),
                    std::shared_ptr<const json>(value_, value));
}

#define BRAID_JSON_GETTERS(T)                                                      \
  template std::optional<T> JsonObject::find(std::string_view) const;              \
  template T JsonObject::get(std::string_view) const;                              \
  template std::optional<std::vector<T>> JsonObject::find(std::string_view) const; \
  template std::vector<T> JsonObject::get(std::string_view) const
BRAID_JSON_GETTERS(bool);
BRAID_JSON_GETTERS(int64_t);
BRAID_JSON_GETTERS(double);
BRAID_JSON_GETTERS(std::string);
#undef BRAID_JSON_GETTERS

}  // namespace braid
