#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace braid::server {

// Whether a value fulfils a JSON schema of the words that the tests use. Shares no code with the
// server's schemas; a word that is not known fails.
inline bool fulfils(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
                    const nlohmann::ordered_json& root) {
  using Json = nlohmann::ordered_json;
  if (schema.is_boolean()) return schema.get<bool>();
  const auto is = [&](const std::string& type) {
    if (type == "integer")
      return value.is_number_integer() ||
             (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    return type == (value.is_number() ? "number" : value.type_name());
  };
  const auto count = [&](const auto& all, auto holds) { return std::ranges::count_if(all, holds); };
  const auto holds = [&](const Json& one) { return fulfils(value, one, root); };
  for (const auto& [word, w] : schema.items()) {
    bool ok = true;
    if (word == "$defs" || word == "title") continue;
    if (word == "type") {
      ok = w.is_array() ? count(w, [&](const Json& t) { return is(t); }) > 0 : is(w);
    } else if (word == "$ref") {
      ok = holds(root.at(Json::json_pointer(w.get<std::string>().substr(1))));
    } else if (word == "const") {
      ok = value == w;
    } else if (word == "enum") {
      ok = std::ranges::count(w, value) > 0;
    } else if (word == "anyOf") {
      ok = count(w, holds) > 0;
    } else if (word == "oneOf") {
      ok = count(w, holds) == 1;
    } else if (word == "properties") {
      for (const auto& [name, property] : w.items())
        ok = ok &&
             (!value.is_object() || !value.contains(name) || fulfils(value[name], property, root));
    } else if (word == "required") {
      ok = !value.is_object() ||
           count(w, [&](const Json& n) { return !value.contains(n.get<std::string>()); }) == 0;
    } else if (word == "additionalProperties") {
      if (value.is_object()) {
        for (const auto& [name, one] : value.items()) {
          const bool listed = schema.contains("properties") && schema["properties"].contains(name);
          ok = ok && (listed || fulfils(one, w, root));
        }
      }
    } else if (word == "items") {
      if (value.is_array()) {
        const size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
        for (size_t i = first; i < value.size(); ++i) ok = ok && fulfils(value[i], w, root);
      }
    } else if (word == "prefixItems") {
      if (value.is_array()) {
        for (size_t i = 0; i < std::min(value.size(), w.size()); ++i)
          ok = ok && fulfils(value[i], w[i], root);
      }
    } else if (word == "minItems") {
      ok = !value.is_array() || value.size() >= w.get<size_t>();
    } else if (word == "maxItems") {
      ok = !value.is_array() || value.size() <= w.get<size_t>();
    } else if (word == "minLength" || word == "maxLength") {
      if (value.is_string()) {
        const std::string text = value.get<std::string>();
        const auto n = count(text, [](char c) { return (c & 0xc0) != 0x80; });
        ok = word == "minLength" ? n >= w.get<int64_t>() : n <= w.get<int64_t>();
      }
    } else if (word == "pattern") {
      ok = !value.is_string() ||
           std::regex_search(value.get<std::string>(), std::regex(w.get<std::string>()));
    } else if (word == "minimum") {
      ok = !value.is_number() || value.get<double>() >= w.get<double>();
    } else if (word == "maximum") {
      ok = !value.is_number() || value.get<double>() <= w.get<double>();
    } else if (word == "exclusiveMinimum") {
      ok = !value.is_number() || value.get<double>() > w.get<double>();
    } else if (word == "multipleOf") {
      ok = !value.is_number() || std::fmod(value.get<double>(), w.get<double>()) == 0;
    } else {
      ok = false;
    }
    if (!ok) return false;
  }
  return true;
}

}  // namespace braid::server
