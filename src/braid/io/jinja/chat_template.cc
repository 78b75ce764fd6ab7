#include "braid/io/jinja/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace braid {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kReserved = {"messages", "tools", "documents",
                                                       "add_generation_prompt"};

void check_array(std::string_view name, const ordered_json& value, bool required) {
  if (value.is_null() && !required) return;
  if (!value.is_array()) {
    fail(ErrorCode::kInvalidArgument, "{} must be an array, not {}", name, value.type_name());
  }
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_object()) {
      fail(ErrorCode::kInvalidArgument, "{}[{}] must be an object, not {}", name, i,
           value[i].type_name());
    }
  }
}

void check_object(std::string_view name, const ordered_json& value) {
  if (!value.is_null() && !value.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{} must be an object, not {}", name, value.type_name());
  }
}

void append(std::vector<jinja::Variable>& variables, const ordered_json& members) {
  for (const auto& [name, value] : members.items()) variables.push_back({name, &value});
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, ordered_json special_tokens)
    : template_(source), special_tokens_(std::move(special_tokens)) {
  check_object("special_tokens", special_tokens_);
}

std::string ChatTemplate::render(const ChatInput& input,
                                 const jinja::RenderOptions& options) const {
  check_array("messages", input.messages, true);
  check_array("tools", input.tools, false);
  check_array("documents", input.documents, false);
  check_object("variables", input.variables);
  for (const auto& [name, value] : input.variables.items()) {
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
      fail(ErrorCode::kInvalidArgument, "the template variable '{}' cannot be set as an extra one",
           name);
    }
  }
  const ordered_json prompt = input.add_generation_prompt;
  std::vector<jinja::Variable> variables;
  append(variables, special_tokens_);
  append(variables, input.variables);
  variables.push_back({"messages", &input.messages});
  variables.push_back({"tools", &input.tools});
  variables.push_back({"documents", &input.documents});
  variables.push_back({"add_generation_prompt", &prompt});
  return template_.render(variables, options);
}

std::optional<std::string> find_chat_template(const ordered_json& tokenizer_config,
                                              bool with_tools) {
  const auto found = tokenizer_config.find("chat_template");
  if (found == tokenizer_config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  const ordered_json* chosen = nullptr;
  for (const auto& entry : *found) {
    const auto name = entry.is_object() ? entry.find("name") : entry.end();
    const auto text = entry.is_object() ? entry.find("template") : entry.end();
    if (name == entry.end() || text == entry.end() || !text->is_string()) {
      fail(ErrorCode::kMalformed,
           "chat_template must be a string or an array of objects with name and template");
    }
    if (*name == "tool_use" && with_tools) return text->get<std::string>();
    if (*name == "default") chosen = &*text;
  }
  if (!chosen) fail(ErrorCode::kMalformed, "chat_template has no entry named 'default'");
  return chosen->get<std::string>();
}

ordered_json find_special_tokens(const ordered_json& tokenizer_config) {
  ordered_json tokens = ordered_json::object();
  const auto add = [&](const std::string& name, const ordered_json& value) {
    if (value.is_string()) tokens[name] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[name] = value["content"];
    }
  };
  for (const auto& [name, value] : tokenizer_config.items()) {
    if (name.ends_with("_token")) add(name, value);
    const bool named = name == "extra_special_tokens" || name == "model_specific_special_tokens";
    if (!named || !value.is_object()) continue;
    for (const auto& [own_name, token] : value.items()) add(own_name, token);
  }
  return tokens;
}

}  // namespace braid
