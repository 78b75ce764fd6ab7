#include "braid/server/schema/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/io/json_text.h"

namespace braid::server {
namespace {

constexpr JsonLimits kLimits{.bytes = int64_t{64} << 20, .depth = 32};

struct TypeName {
  unsigned type;
  std::string_view name;
};
constexpr TypeName kTypeNames[] = {{kBoolean, "boolean"}, {kInteger, "integer"},
                                   {kNumber, "number"},   {kString, "string"},
                                   {kArray, "array"},     {kObject, "object"}};

unsigned type_of(const Json& value) {
  if (value.is_boolean()) return kBoolean;
  if (value.is_number_integer()) return kInteger | kNumber;
  if (value.is_number()) return kNumber;
  if (value.is_string()) return kString;
  if (value.is_array()) return kArray;
  return kObject;
}

std::string names_of(unsigned types) {
  if ((types & kNumber) != 0) types &= ~static_cast<unsigned>(kInteger);
  std::string text;
  for (const TypeName& t : kTypeNames) {
    if ((types & t.type) != 0) text += (text.empty() ? "" : " or ") + std::string(t.name);
  }
  return text;
}

// A value for a message, cut if long.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

bool bounded(const Field& field) {
  return std::isfinite(field.least) || std::isfinite(field.most);
}

std::string range_of(const Field& field) {
  if (!bounded(field)) return "";
  if (!std::isfinite(field.most)) return fmt::format("{} or more", field.least);
  return fmt::format("{} to {}", field.least, field.most);
}

void check(const Field& field, const Json& value) {
  if (field.effect == Effect::accepted) return;
  if (field.effect == Effect::refused) {
    // `otherwise` lists values that change nothing.
    for (const Json& harmless : Json::parse(fmt::format("[{}]", field.otherwise))) {
      if (harmless == value) return;
    }
    Body::fail(field.name,
               fmt::format("{} is {}: this server does not support it", field.name, shown(value)));
  }
  if ((type_of(value) & field.types) == 0) {
    Body::fail(field.name,
               fmt::format("{} is {}, wanted {}", field.name, shown(value), names_of(field.types)));
  }
  if (!value.is_number()) return;
  const double number = value.get<double>();
  if (!(number >= field.least && number <= field.most)) {
    Body::fail(field.name,
               fmt::format("{} is {}, wanted {}", field.name, shown(value), range_of(field)));
  }
}

}  // namespace

Field refused(std::string_view name, std::string_view harmless) {
  return {
      .name = name, .meaning = "not supported", .otherwise = harmless, .effect = Effect::refused};
}

Field accepted(std::string_view name) {
  return {.name = name, .meaning = "accepted, without effect", .effect = Effect::accepted};
}

void Body::fail(std::string_view name, const std::string& message) {
  throw ApiError(400, message, std::string(name));
}

Body::Body(std::string_view text, std::span<const Field> fields) {
  try {
    // Read strictly first: duplicate keys, depth, UTF-8, range of numbers.
    parse_json(text, "the body", kLimits);
    json_ = Json::parse(text);
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  if (!json_.is_object())
    throw ApiError(400, fmt::format("the body is {}, wanted an object", shown(json_)));
  std::vector<std::string> absent;
  for (const auto& [name, value] : json_.items()) {
    if (value.is_null()) absent.push_back(name);
  }
  for (const std::string& name : absent) json_.erase(name);
  for (const auto& [name, value] : json_.items()) {
    const auto field = std::ranges::find(fields, std::string_view(name), &Field::name);
    if (field == fields.end()) {
      unknown_.push_back(name);
    } else {
      check(*field, value);
    }
  }
  for (const std::string& name : unknown_) json_.erase(name);
  for (const Field& field : fields) {
    if (field.required && !json_.contains(field.name))
      fail(field.name, fmt::format("{} is missing", field.name));
  }
}

const Json* Body::find(std::string_view name) const {
  const auto it = json_.find(std::string(name));
  return it == json_.end() ? nullptr : &*it;
}

bool Body::boolean(std::string_view name, bool otherwise) const {
  const Json* value = find(name);
  return value == nullptr ? otherwise : value->get<bool>();
}

std::optional<int64_t> Body::integer(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  return value->get<int64_t>();
}

int64_t Body::integer(std::string_view name, int64_t otherwise) const {
  return integer(name).value_or(otherwise);
}

double Body::number(std::string_view name, double otherwise) const {
  const Json* value = find(name);
  return value == nullptr ? otherwise : value->get<double>();
}

std::optional<std::string> Body::string(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  return value->get<std::string>();
}

std::vector<int32_t> ids_of(const Json& value, std::string_view name, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<double>() < 0 ||
        id.get<double>() >= static_cast<double>(vocabulary)) {
      Body::fail(name, fmt::format("{} has {}, wanted token ids from 0 to {}", name, shown(id),
                                   vocabulary - 1));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Json schema_of(std::span<const Field> fields) {
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : fields) {
    Json property = Json::object();
    Json types = Json::array();
    for (const TypeName& t : kTypeNames) {
      const bool covered = t.type == kInteger && (field.types & kNumber) != 0;
      if ((field.types & t.type) != 0 && !covered) types.push_back(t.name);
    }
    if (field.effect == Effect::used) types.push_back("null");
    if (field.types != kAny) property["type"] = types;
    if (std::isfinite(field.least)) property["minimum"] = field.least;
    if (std::isfinite(field.most)) property["maximum"] = field.most;
    property["description"] = field.meaning;
    if (!field.schema.empty()) property.update(Json::parse(fmt::format("{{{}}}", field.schema)));
    properties[std::string(field.name)] = std::move(property);
    if (field.required) required.push_back(field.name);
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

std::string table_of(std::span<const Field> fields) {
  std::string text = "| field | type | range | default | meaning |\n|---|---|---|---|---|\n";
  for (const Field& field : fields) {
    if (field.effect != Effect::used) continue;
    text += fmt::format("| `{}`{} | {} | {} | {} | {} |\n", field.name,
                        field.required ? " (required)" : "", names_of(field.types), range_of(field),
                        field.otherwise, field.meaning);
  }
  const auto list = [&](Effect effect) {
    std::string names;
    for (const Field& field : fields) {
      if (field.effect == effect)
        names += fmt::format("{}`{}`", names.empty() ? "" : ", ", field.name);
    }
    return names;
  };
  if (const std::string names = list(Effect::accepted); !names.empty()) {
    text += "\nAccepted, without effect: " + names + ".\n";
  }
  if (const std::string names = list(Effect::refused); !names.empty()) {
    text += "\nRefused with 400 unless the value changes nothing: " + names + ".\n";
  }
  return text;
}

}  // namespace braid::server
