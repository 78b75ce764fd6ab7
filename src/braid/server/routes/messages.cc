#include "braid/server/routes/messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/text/prompt_marks.h"

namespace braid::server {
namespace {

constexpr size_t kMostName = 64;
constexpr std::string_view kTextParts[] = {"text"};

// OpenAI's names: letters that no special token contains.
bool is_name(const Json* name) {
  if (name == nullptr || !name->is_string()) return false;
  const std::string text = name->get<std::string>();
  return !text.empty() && text.size() <= kMostName && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// A function and its place, for errors.
struct PlacedFunction {
  const Json& function;
  std::string place;
};

// Fails where a tool, a call or a choice names no function.
PlacedFunction function_of(const Json& object, ToolForm form, const std::string& field,
                           const std::string& where) {
  if (!object.is_object()) Body::fail(field, where + " is no object");
  const Json* type = member(object, "type");
  if (type != nullptr && *type != "function")
    Body::fail(field, fmt::format("{}.type is {}, wanted \"function\"", where, type->dump()));
  const Json* function = form == ToolForm::flat ? &object : member(object, "function");
  const std::string place = form == ToolForm::flat ? where : where + ".function";
  if (function == nullptr || !function->is_object()) Body::fail(field, place + " is missing");
  const Json* name = member(*function, "name");
  if (!is_name(name)) {
    Body::fail(field, fmt::format("{}.name is {}, wanted 1 to {} letters, digits, _, - or .", place,
                                  name == nullptr ? "missing" : name->dump(), kMostName));
  }
  return {*function, place};
}

// An earlier answer's calls.
Json calls_of(const Json& calls, const std::string& where) {
  if (!calls.is_array()) Body::fail("messages", where + " is no list");
  Json list = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const Json& function =
        function_of(calls[i], ToolForm::nested, "messages", fmt::format("{}[{}]", where, i))
            .function;
    const Json* arguments = member(function, "arguments");
    Json call = call_for_template(function["name"], arguments == nullptr ? Json() : *arguments);
    if (const Json* id = member(calls[i], "id")) {
      if (!id->is_string()) Body::fail("messages", fmt::format("{}[{}].id is no text", where, i));
      call["id"] = *id;
    }
    list.push_back(std::move(call));
  }
  return list;
}

Json message_of(const Json& message, const std::string& where) {
  if (!message.is_object()) Body::fail("messages", where + " is no object");
  const Json* role = member(message, "role");
  if (role == nullptr || !role->is_string()) Body::fail("messages", where + ".role is missing");
  std::string name = role->get<std::string>();
  static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::ranges::find(kRoles, name) == std::end(kRoles)) {
    Body::fail("messages",
               fmt::format("{}.role is '{}', wanted system, developer, user, assistant or tool",
                           where, name));
  }
  if (name == "developer") name = "system";  // templates do not know the newer name
  const Json* calls = member(message, "tool_calls");
  if (calls != nullptr && calls->empty()) calls = nullptr;
  if (calls != nullptr && name != "assistant")
    Body::fail("messages", fmt::format("{}.tool_calls: a {} calls no tools", where, name));
  const auto content = message.find("content");
  if (content == message.end() && calls == nullptr)
    Body::fail("messages", where + ".content is missing");
  Json out = {{"role", name},
              {"content", content == message.end() ? ""
                                                   : content_text(*content, "messages",
                                                                  where + ".content", kTextParts)}};
  for (const char* text : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    const Json* value = member(message, text);
    if (value == nullptr) continue;
    if (!value->is_string()) Body::fail("messages", fmt::format("{}.{} is no text", where, text));
    out[text == std::string_view("reasoning") ? "reasoning_content" : text] = *value;
  }
  if (calls != nullptr) out["tool_calls"] = calls_of(*calls, where + ".tool_calls");
  return out;
}

// Narrows the functions to tool_choice's.
void apply_choice(const Json& choice, ToolForm form, ToolUse& use) {
  if (choice == "auto") return;
  use.must_call = true;
  if (choice == "required") return;
  if (!choice.is_object()) {
    Body::fail(
        "tool_choice",
        fmt::format("tool_choice is {}, wanted \"none\", \"auto\", \"required\" or a function",
                    choice.dump()));
  }
  const std::string name =
      function_of(choice, form, "tool_choice", "tool_choice").function["name"].get<std::string>();
  std::erase_if(use.functions, [&](const CallableFunction& f) { return f.name != name; });
  if (use.functions.empty())
    Body::fail("tool_choice", fmt::format("tool_choice names '{}', which is not in tools", name));
  use.one_call = true;
}

// A flat tool as chat templates know tools.
Json nested(const Json& tool) {
  Json function = Json::object();
  for (const char* name : {"name", "description", "parameters", "strict"}) {
    if (const Json* value = member(tool, name)) function[name] = *value;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

// A callable function, checked.
CallableFunction callable(const PlacedFunction& placed) {
  const auto& [function, where] = placed;
  const Json* parameters = member(function, "parameters");
  if (parameters != nullptr && !parameters->is_object())
    Body::fail("tools", where + ".parameters is no object");
  const Json* description = member(function, "description");
  if (description != nullptr && !description->is_string())
    Body::fail("tools", where + ".description is no text");
  const Json* given = member(function, "strict");
  if (given != nullptr && !given->is_boolean())
    Body::fail("tools", where + ".strict is neither true nor false");
  return {.name = function["name"].get<std::string>(),
          .parameters = parameters == nullptr ? Json() : *parameters,
          .strict = given != nullptr && *given == true,
          .place = where};
}

}  // namespace

const Json* member(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string content_text(const Json& content, const std::string& field, const std::string& where,
                         std::span<const std::string_view> types) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  if (!content.is_array()) Body::fail(field, where + " is neither a text nor a list of parts");
  std::string text;
  for (const Json& part : content) {
    const Json* given = part.is_object() ? member(part, "type") : nullptr;
    const std::string type =
        given != nullptr && given->is_string() ? given->get<std::string>() : "";
    if (std::ranges::find(types, type) == types.end()) {
      Body::fail(field, fmt::format("{} has a part of type '{}': this model takes text alone",
                                    where, type));
    }
    const Json* value = member(part, type == "refusal" ? "refusal" : "text");
    if (value == nullptr || !value->is_string())
      Body::fail(field, where + " has a text part without text");
    text += value->get<std::string>();
  }
  return text;
}

Json messages_of(const Json& messages) {
  if (messages.empty()) Body::fail("messages", "messages is empty, wanted at least one");
  Json all = Json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    all.push_back(message_of(messages[i], fmt::format("messages[{}]", i)));
  return all;
}

ToolUse tool_use(const Service& service, const Body& body, ToolForm form) {
  ToolUse use{.one_call = !body.boolean("parallel_tool_calls", true)};
  const Json* tools = body.find("tools");
  const bool offered = tools != nullptr && !tools->empty();
  const Json* choice = body.find("tool_choice");
  if (!offered && choice != nullptr && *choice != "none" && *choice != "auto")
    Body::fail("tool_choice", fmt::format("tool_choice is {} without tools", choice->dump()));
  if (!offered || (choice != nullptr && *choice == "none")) return use;
  use.tools = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const PlacedFunction placed = function_of(tool, form, "tools", fmt::format("tools[{}]", i));
    CallableFunction function = callable(placed);
    if (std::ranges::find(use.names, function.name) != use.names.end()) {
      Body::fail("tools",
                 fmt::format("{}.name is '{}', as of a tool before", placed.place, function.name));
    }
    use.names.push_back(function.name);
    use.functions.push_back(std::move(function));
    use.tools.push_back(form == ToolForm::flat ? nested(tool) : tool);
  }
  if (choice != nullptr) apply_choice(*choice, form, use);
  if (!service.chat->knows_tools()) {
    Body::fail("tools",
               fmt::format("tools: the chat template of {} does not know tools", service.name));
  }
  return use;
}

Json call_for_template(const Json& name, Json arguments) {
  if (arguments.is_null()) arguments = Json::object();
  if (arguments.is_string()) {
    Json inner = Json::parse(arguments.get<std::string>(), nullptr, false);
    if (inner.is_object()) arguments = std::move(inner);
  }
  return {{"type", "function"},
          {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

ChatRequest chat_request(const Service& service, const Body& body) {
  check_template(service);
  ToolUse use = tool_use(service, body, ToolForm::nested);
  ChatMessages conversation{.messages = messages_of(*body.find("messages"))};
  if (const Json* variables = body.find("chat_template_kwargs"))
    conversation.variables = *variables;
  if (const auto effort = body.string("reasoning_effort"))
    conversation.variables["reasoning_effort"] = *effort;
  return chat_request(service, std::move(conversation), std::move(use));
}

void check_template(const Service& service) {
  if (service.chat != nullptr) return;
  throw ApiError(400, "the model " + service.name + " has no chat template: use /v1/completions");
}

ChatRequest chat_request(const Service& service, ChatMessages conversation, ToolUse use) {
  conversation.tools = use.tools;
  ChatRequest request{.prompt = service.chat->encode_conversation(conversation),
                      .use = std::move(use)};
  request.marks = marks_behind(service.marks, service.tokenizer(), request.prompt);
  const auto special = [&](const std::string& mark) {
    const auto id = service.tokenizer().find(mark);
    return id && service.tokenizer().is_special(*id);
  };
  if (!request.marks.open.empty()) {
    request.show_special = special(request.marks.open) || special(request.marks.close);
  }
  if (!request.use.names.empty()) {
    request.format = service.calls;
    const std::string mark = CallParser::mark_of(service.calls);
    if (special(mark)) request.mark_token = service.tokenizer().find(mark);
    request.show_special |= request.mark_token.has_value();
  }
  return request;
}

}  // namespace braid::server
