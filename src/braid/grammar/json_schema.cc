#include "braid/grammar/json_schema.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "braid/base/error.h"
#include "braid/grammar/regex.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;

enum Kind : unsigned { kObject = 1, kArray = 2, kString = 4, kNumber = 8, kConstant = 16 };

struct Named {
  std::string_view name;
  unsigned kind;
};
constexpr Named kTypes[] = {{"object", kObject}, {"array", kArray},    {"string", kString},
                            {"number", kNumber}, {"integer", kNumber}, {"boolean", kConstant},
                            {"null", kConstant}};
// Schema words that grammars enforce, each with the constrained type of value.
constexpr Named kWords[] = {{"properties", kObject},
                            {"required", kObject},
                            {"additionalProperties", kObject},
                            {"patternProperties", kObject},
                            {"propertyNames", kObject},
                            {"minProperties", kObject},
                            {"maxProperties", kObject},
                            {"items", kArray},
                            {"prefixItems", kArray},
                            {"minItems", kArray},
                            {"maxItems", kArray},
                            {"uniqueItems", kArray},
                            {"minLength", kString},
                            {"maxLength", kString},
                            {"pattern", kString},
                            {"format", kString},
                            {"minimum", kNumber},
                            {"maximum", kNumber},
                            {"exclusiveMinimum", kNumber},
                            {"exclusiveMaximum", kNumber},
                            {"multipleOf", kNumber}};
// Words without effect on answers.
constexpr std::string_view kNotes[] = {"title",    "description", "default",  "examples",
                                       "example",  "deprecated",  "readOnly", "writeOnly",
                                       "$comment", "$schema",     "$id",      "discriminator"};
// Words that stand for a whole schema.
constexpr std::string_view kShapes[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr std::string_view kDefinitions[] = {"$defs", "definitions"};

#define BRAID_DATE                                                               \
  "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)" \
  "-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define BRAID_TIME                                                                            \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3])" \
  ":[0-5][0-9])"
#define BRAID_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,14}[A-Za-z0-9])?"

struct Format {
  std::string_view name, pattern;
};
constexpr Format kFormats[] = {
    {"date", BRAID_DATE},
    {"time", BRAID_TIME},
    {"date-time", BRAID_DATE "T" BRAID_TIME},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"ipv4",
     "(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}"
     "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"},
    {"hostname", BRAID_LABEL "(?:\\." BRAID_LABEL "){0,3}"},
    {"email",
     "[A-Za-z0-9_+-]{1,16}(?:\\.[A-Za-z0-9_+-]{1,16})?@" BRAID_LABEL "(?:\\." BRAID_LABEL "){1,3}"},
    {"uri", "https?://" BRAID_LABEL "(?:\\." BRAID_LABEL
            "){0,3}(?::[1-9][0-9]{0,3})?(?:/[A-Za-z0-9._~-]*)*(?:\\?[A-Za-z0-9._~=&-]*)?"},
};

template <class List>
bool has(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

bool is_note(std::string_view word) {
  return has(kNotes, word) || word.starts_with("x-");
}

unsigned kind_of_type(std::string_view type) {
  const auto it = std::ranges::find(kTypes, type, &Named::name);
  return it == std::end(kTypes) ? 0 : it->kind;
}

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return value.is_number_integer();
}

std::vector<std::string> types_of(const Json& schema) {
  const auto it = schema.find("type");
  if (it == schema.end()) return {};
  std::vector<std::string> types;
  for (const Json& one : it->is_array() ? *it : Json::array({*it})) {
    if (one.is_string()) types.push_back(one.get<std::string>());
  }
  return types;
}

class SchemaReader {
 public:
  explicit SchemaReader(const Json& root) : root_(root) {}

  Json whole() {
    Json out = read(root_, "#");
    for (const auto& [place, target] : references_) {
      if (!places_.contains(target))
        fail(place, "$ref", fmt::format("names '{}', which is not there", target));
    }
    return out;
  }

 private:
  [[noreturn]] static void fail(const std::string& place, std::string_view word,
                                std::string_view why) {
    braid::fail(ErrorCode::kInvalidArgument, "the schema at {}: {} {}", place, word, why);
  }

  Json read(const Json& schema, const std::string& place) {
    places_.insert(place);
    if (schema.is_boolean()) return schema;
    if (!schema.is_object()) fail(place, schema.dump(), "is neither an object nor true or false");
    Json out = Json::object();
    std::string_view shape;
    std::vector<const Named*> words;
    for (const auto& [name, value] : schema.items()) {
      if (is_note(name) || name == "type") continue;
      if (has(kDefinitions, name)) {
        if (!value.is_object()) fail(place, name, "is no object");
        for (const auto& [key, definition] : value.items())
          out[name][key] = read(definition, fmt::format("{}/{}/{}", place, name, key));
        continue;
      }
      if (has(kShapes, name)) {
        if (!shape.empty()) fail(place, name, fmt::format("beside {} is not supported", shape));
        shape = name;
        continue;
      }
      const auto word = std::ranges::find(kWords, std::string_view(name), &Named::name);
      if (word == std::end(kWords)) fail(place, name, "is not supported");
      words.push_back(word);
    }
    if (!shape.empty()) {
      if (!words.empty())
        fail(place, words[0]->name, fmt::format("beside {} is not supported", shape));
      read_shape(schema, shape, place, out);
    } else {
      read_types(schema, words, place, out);
    }
    return out;
  }

  void read_shape(const Json& schema, std::string_view shape, const std::string& place, Json& out) {
    const Json& value = schema.at(std::string(shape));
    const std::vector<std::string> types = types_of(schema);
    if (shape == "$ref") {
      if (!types.empty()) fail(place, "type", "beside $ref is not supported");
      out["$ref"] = reference(value, place);
    } else if (shape == "const" || shape == "enum") {
      if (shape == "enum" && !value.is_array()) fail(place, "enum", "is no list");
      Json kept = Json::array();
      for (const Json& one : shape == "enum" ? value : Json::array({value})) {
        const auto fits = [&](const std::string& type) { return is_of_type(one, type); };
        if (types.empty() || std::ranges::any_of(types, fits)) kept.push_back(one);
      }
      if (kept.empty()) fail(place, shape, "has no value of the type");
      out["enum"] = std::move(kept);
    } else {
      if (!types.empty()) fail(place, "type", fmt::format("beside {} is not supported", shape));
      if (!value.is_array() || value.empty()) fail(place, shape, "is no list of schemas");
      if (shape == "allOf" && value.size() != 1)
        fail(place, "allOf", "of several schemas is not supported");
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string at = fmt::format("{}/{}/{}", place, shape, i);
        Json one = read(value[i], at);
        // To see that no two branches hold at once, the branches have to be here.
        if (shape == "oneOf" && one.is_object() && one.contains("$ref"))
          one = read(resolve(one["$ref"].get<std::string>(), at), at);
        out[std::string(shape)].push_back(std::move(one));
      }
    }
  }

  std::string reference(const Json& value, const std::string& place) {
    const std::string target = value.is_string() ? value.get<std::string>() : value.dump();
    if (!value.is_string() || (target != "#" && !target.starts_with("#/")) ||
        target.find_first_of("~%") != std::string::npos) {
      fail(place, "$ref", fmt::format("is '{}', wanted a place inside the schema", target));
    }
    references_.emplace_back(place, target);
    return target;
  }

  const Json& resolve(const std::string& target, const std::string& place) const {
    try {
      return root_.at(Json::json_pointer(target.substr(1)));
    } catch (const Json::exception&) {
      fail(place, "$ref", fmt::format("names '{}', which is not there", target));
    }
  }

  void read_types(const Json& schema, const std::vector<const Named*>& words,
                  const std::string& place, Json& out) {
    std::vector<std::string> types = types_of(schema);
    unsigned kinds = 0;
    for (const std::string& type : types) {
      if (kind_of_type(type) == 0)
        fail(place, "type", fmt::format("is '{}', which no value has", type));
      kinds |= kind_of_type(type);
    }
    if (schema.contains("type") && types.empty()) fail(place, "type", "names no type");
    if (types.empty()) {  // the words tell it
      for (const Named* word : words) kinds |= word->kind;
      if (kinds == 0) return;
      const auto* type = std::ranges::find(kTypes, kinds, &Named::kind);
      if (type == std::end(kTypes)) fail(place, "type", "is missing beside words of several types");
      types.emplace_back(type->name);
    }
    out["type"] = types.size() == 1 ? Json(types[0]) : Json(types);
    if ((kinds & kObject) != 0) read_object(schema, place, out);
    if ((kinds & kArray) != 0) read_array(schema, place, out);
    if ((kinds & kString) != 0) read_string(schema, place, out);
    if ((kinds & kNumber) == 0) return;
    for (const Named& word : kWords) {
      const auto it = schema.find(std::string(word.name));
      if (word.kind != kNumber || it == schema.end()) continue;
      if (!it->is_number())
        fail(place, word.name, fmt::format("is {}, wanted a number", it->dump()));
      out[std::string(word.name)] = *it;
    }
  }

  // A bound on a size; none if absent.
  static std::optional<int64_t> size_of(const Json& schema, const char* word,
                                        const std::string& place) {
    const auto it = schema.find(word);
    if (it == schema.end()) return {};
    if (!it->is_number_integer() || it->get<double>() < 0 || it->get<double>() > 1e6)
      fail(place, word, fmt::format("is {}, wanted an integer from 0 to 1000000", it->dump()));
    return it->get<int64_t>();
  }

  void read_object(const Json& schema, const std::string& place, Json& out) {
    Json properties = Json::object();
    if (const auto it = schema.find("properties"); it != schema.end()) {
      if (!it->is_object()) fail(place, "properties", "is no object");
      for (const auto& [name, property] : it->items())
        properties[name] = read(property, fmt::format("{}/properties/{}", place, name));
    }
    const bool listed = !properties.empty();
    const auto patterns = schema.find("patternProperties");
    const bool patterned = patterns != schema.end();
    const bool named = schema.contains("propertyNames");
    Json additional = !listed && !patterned;
    if (const auto it = schema.find("additionalProperties"); it != schema.end())
      additional = read(*it, place + "/additionalProperties");
    if (const auto it = schema.find("required"); it != schema.end()) {
      if (!it->is_array()) fail(place, "required", "is no list");
      out["required"] = Json::array();
      for (const Json& name : *it) {
        if (!name.is_string()) fail(place, "required", "has something other than names");
        if (std::ranges::count(out["required"], name) > 0) continue;
        out["required"].push_back(name);
        if (properties.contains(name.get<std::string>())) continue;
        if (additional == false || named)
          fail(place, "required", fmt::format("names {}, which may not be there", name.dump()));
        properties[name.get<std::string>()] = additional;
      }
    }
    if (patterned) {
      if (!patterns->is_object()) fail(place, "patternProperties", "is no object");
      if (!properties.empty() || named || additional != false || patterns->size() != 1) {
        fail(place, "patternProperties",
             "is supported with a single pattern, and without other properties");
      }
      const std::string pattern = patterns->begin().key();
      out["patternProperties"][key_pattern(pattern, place)] =
          read(patterns->begin().value(), fmt::format("{}/patternProperties/{}", place, pattern));
    }
    if (named) {
      if (!properties.empty() || patterned)
        fail(place, "propertyNames", "is supported without other words on names");
      Json names = schema["propertyNames"];
      if (!names.is_object()) fail(place, "propertyNames", "is no object");
      if (!names.contains("type") && !names.contains("$ref") && !names.contains("enum") &&
          !names.contains("const"))
        names["type"] = "string";
      out["propertyNames"] = read(names, place + "/propertyNames");
    }
    const auto least = size_of(schema, "minProperties", place);
    const auto most = size_of(schema, "maxProperties", place);
    if (least.value_or(0) > 1 && (additional != false || patterned))
      fail(place, "minProperties", "over 1 is supported where all properties are listed");
    if (least) out["minProperties"] = *least;
    if (most) out["maxProperties"] = *most;
    if (!properties.empty()) out["properties"] = std::move(properties);
    out["additionalProperties"] = std::move(additional);
  }

  void read_array(const Json& schema, const std::string& place, Json& out) {
    const auto least = size_of(schema, "minItems", place);
    const auto most = size_of(schema, "maxItems", place);
    if (least) out["minItems"] = *least;
    if (most) out["maxItems"] = *most;
    if (const auto it = schema.find("uniqueItems"); it != schema.end() && *it != false)
      fail(place, "uniqueItems", "is not supported");
    int64_t first = 0;
    if (const auto it = schema.find("prefixItems"); it != schema.end()) {
      if (!it->is_array()) fail(place, "prefixItems", "is no list");
      for (const Json& one : *it) {
        const std::string at = fmt::format("{}/prefixItems/{}", place, first++);
        Json item = read(one, at);
        if (item == false) fail(at, "false", "allows nothing");
        out["prefixItems"].push_back(item == true ? Json::object() : std::move(item));
      }
    }
    if (const auto it = schema.find("items"); it != schema.end()) {
      out["items"] = read(*it, place + "/items");
    } else {
      out["items"] = first == 0 || least.value_or(0) > first;
    }
  }

  void read_string(const Json& schema, const std::string& place, Json& out) {
    const auto least = size_of(schema, "minLength", place);
    const auto most = size_of(schema, "maxLength", place);
    const auto pattern = schema.find("pattern"), format = schema.find("format");
    const int said = (least || most ? 1 : 0) + (pattern != schema.end() ? 1 : 0) +
                     (format != schema.end() ? 1 : 0);
    if (said > 1)
      fail(place, pattern != schema.end() ? "pattern" : "format",
           "beside another word on the text is not supported");
    if (pattern != schema.end()) {
      if (!pattern->is_string()) fail(place, "pattern", "is no text");
      out["pattern"] = key_pattern(pattern->get<std::string>(), place);
    } else if (format != schema.end()) {
      const auto known =
          std::ranges::find_if(kFormats, [&](const Format& f) { return *format == f.name; });
      if (known == std::end(kFormats))
        fail(place, "format",
             fmt::format("is {}, supported are {}", format->dump(), known_formats()));
      out["pattern"] = key_pattern(fmt::format("^(?:{})$", known->pattern), place);
    } else if (least || most) {
      if (most && least.value_or(0) > *most)
        fail(place, "minLength", fmt::format("is {}, over maxLength {}", *least, *most));
      // xgrammar's own lengths allow characters that JSON escapes.
      const std::string times = most ? fmt::format("{{{},{}}}", least.value_or(0), *most)
                                     : fmt::format("{{{},}}", *least);
      out["pattern"] = key_pattern("^[^\\u0000]" + times + "$", place);
    }
  }

  // For a text or a key. The empty group outside ASCII keeps xgrammar 0.2.8 from its automata for
  // regular expressions, which let wrong texts through; its grammars for such patterns do not.
  static std::string key_pattern(const std::string& pattern, const std::string& place) {
    const std::string where = fmt::format("the schema at {}", place);
    return "^" + plain_regex(pattern, RegexUse::json_string, where) + "(?:é){0}$";
  }

  const Json& root_;
  std::set<std::string> places_;
  std::vector<std::pair<std::string, std::string>> references_;  // from a place to a place
};

}  // namespace

Json enforceable_schema(const Json& schema) {
  return SchemaReader(schema).whole();
}

std::string_view known_formats() {
  static const std::string names = [] {
    std::string all;
    for (const Format& format : kFormats)
      all += (all.empty() ? "" : ", ") + std::string(format.name);
    return all;
  }();
  return names;
}

}  // namespace braid
