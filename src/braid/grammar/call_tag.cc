#include "braid/grammar/call_tag.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/grammar/grammar_tag.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;

Json text(const std::string& value) {
  return {{"type", "const_string"}, {"value", value}};
}

Json sequence(Json elements) {
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

Json either(Json elements) {
  if (elements.size() == 1) return elements[0];
  return {{"type", "or"}, {"elements", std::move(elements)}};
}

// Further calls behind the first.
Json more(const std::string& separator, const Json& call) {
  return {{"type", "star"}, {"content", sequence({text(separator), call})}};
}

Json arguments_of(const CallableFunction& function) {
  const Json schema =
      function.parameters.is_null() ? Json{{"type", "object"}} : function.parameters;
  try {
    return schema_format(schema);
  } catch (const Error& error) {
    if (!function.strict) return schema_format({{"type", "object"}});
    fail(error.code(), "{}.parameters: {}", function.place, error.what());
  }
}

std::string begin_of(const CallableFunction& function, std::string_view arguments) {
  return fmt::format("{{\"name\": {}, \"{}\": ", Json(function.name).dump(), arguments);
}

constexpr std::string_view kHermesBegin = "<tool_call>\n", kHermesEnd = "}\n</tool_call>";

// Text with whole calls: a call once begun is completed.
Json text_with_calls(const std::vector<CallableFunction>& functions, const CallRules& rules) {
  if (rules.format != CallFormat::hermes || rules.mark_token) {
    fail(ErrorCode::kInvalidArgument,
         "strict functions beside text are supported in the format hermes, this model's is {}: "
         "tool_choice required or a named function binds its calls",
         to_string(rules.format));
  }
  Json tags = Json::array();
  for (const CallableFunction& function : functions) {
    tags.push_back({{"type", "tag"},
                    {"begin", std::string(kHermesBegin) + begin_of(function, "arguments")},
                    {"content", arguments_of(function)},
                    {"end", kHermesEnd}});
  }
  return {{"type", "triggered_tags"},
          {"triggers", {CallParser::mark_of(CallFormat::hermes)}},
          {"tags", std::move(tags)},
          {"stop_after_first", rules.one}};
}

}  // namespace

std::string calls_tag(const std::vector<CallableFunction>& functions, const CallRules& rules) {
  const bool strict = std::ranges::any_of(functions, &CallableFunction::strict);
  if (!rules.must) return strict ? tag_of(text_with_calls(functions, rules)) : "";
  const bool llama = rules.format == CallFormat::llama3;
  Json calls = Json::array();
  for (const CallableFunction& function : functions) {
    const std::string begin = begin_of(function, llama ? "parameters" : "arguments");
    calls.push_back(sequence({text(begin), arguments_of(function), text("}")}));
  }
  const Json call = either(std::move(calls));
  const std::string mark = CallParser::mark_of(rules.format);
  const Json opening =
      rules.mark_token ? Json{{"type", "token"}, {"token", *rules.mark_token}} : text(mark);
  switch (rules.format) {
    case CallFormat::hermes: {
      const Json whole = sequence({opening, text("\n"), call, text("\n</tool_call>")});
      return tag_of(rules.one ? whole : sequence({whole, more("\n", whole)}));
    }
    case CallFormat::mistral:
      return tag_of(rules.one ? sequence({opening, text("["), call, text("]")})
                              : sequence({opening, text("["), call, more(", ", call), text("]")}));
    case CallFormat::llama3:
      return tag_of(rules.one ? call : sequence({call, more("; ", call)}));
    default:
      if (rules.one) return tag_of(call);
      return tag_of(either({call, sequence({text("["), call, more(", ", call), text("]")})}));
  }
}

}  // namespace braid
