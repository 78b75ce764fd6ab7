#include "braid/server/routes/messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/text/mark_search.h"

namespace braid::server {
namespace {

constexpr size_t kMostName = 64;

std::string text_of(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  if (!content.is_array())
    Body::fail("messages", where + ".content is neither a text nor a list of parts");
  std::string text;
  for (const Json& part : content) {
    const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                 ? part["type"].get<std::string>()
                                 : "";
    if (type != "text") {
      Body::fail("messages",
                 fmt::format("{}.content has a part of type '{}': this model takes text alone",
                             where, type));
    }
    const auto it = part.find("text");
    if (it == part.end() || !it->is_string())
      Body::fail("messages", where + ".content has a text part without text");
    text += it->get<std::string>();
  }
  return text;
}

// A member of an object; null if absent or null.
const Json* member(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// OpenAI's names: letters that no special token is made of.
bool is_name(const Json* name) {
  if (name == nullptr || !name->is_string()) return false;
  const std::string text = name->get<std::string>();
  return !text.empty() && text.size() <= kMostName && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// {"type": "function", "function": {"name": ...}}; fails where it is something else.
const Json& function_of(const Json& object, const std::string& field, const std::string& where) {
  if (!object.is_object()) Body::fail(field, where + " is no object");
  const Json* type = member(object, "type");
  if (type != nullptr && *type != "function")
    Body::fail(field, fmt::format("{}.type is {}, wanted \"function\"", where, type->dump()));
  const Json* function = member(object, "function");
  if (function == nullptr || !function->is_object())
    Body::fail(field, where + ".function is missing");
  const Json* name = member(*function, "name");
  if (!is_name(name)) {
    Body::fail(field,
               fmt::format("{}.function.name is {}, wanted 1 to {} letters, digits, _, - or .",
                           where, name == nullptr ? "missing" : name->dump(), kMostName));
  }
  return *function;
}

// Calls of an earlier answer. Their arguments come as a text; templates want the object in it.
Json calls_of(const Json& calls, const std::string& where) {
  if (!calls.is_array()) Body::fail("messages", where + " is no list");
  Json list = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const Json& function = function_of(calls[i], "messages", fmt::format("{}[{}]", where, i));
    Json arguments = Json::object();
    if (const Json* given = member(function, "arguments")) arguments = *given;
    if (arguments.is_string()) {
      Json inner = Json::parse(arguments.get<std::string>(), nullptr, false);
      if (inner.is_object()) arguments = std::move(inner);
    }
    Json call = {{"type", "function"},
                 {"function", {{"name", function["name"]}, {"arguments", std::move(arguments)}}}};
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
              {"content", content == message.end() ? "" : text_of(*content, where)}};
  for (const char* text : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    const Json* value = member(message, text);
    if (value == nullptr) continue;
    if (!value->is_string()) Body::fail("messages", fmt::format("{}.{} is no text", where, text));
    out[text == std::string_view("reasoning") ? "reasoning_content" : text] = *value;
  }
  if (calls != nullptr) out["tool_calls"] = calls_of(*calls, where + ".tool_calls");
  return out;
}

// Narrows the functions to what tool_choice allows.
void apply_choice(const Json& choice, ToolUse& use) {
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
      function_of(choice, "tool_choice", "tool_choice")["name"].get<std::string>();
  std::erase_if(use.functions, [&](const CallableFunction& f) { return f.name != name; });
  if (use.functions.empty())
    Body::fail("tool_choice", fmt::format("tool_choice names '{}', which is not in tools", name));
  use.one_call = true;
}

}  // namespace

Json messages_of(const Json& messages) {
  if (messages.empty()) Body::fail("messages", "messages is empty, wanted at least one");
  Json all = Json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    all.push_back(message_of(messages[i], fmt::format("messages[{}]", i)));
  return all;
}

ToolUse tool_use(const Service& service, const Body& body) {
  ToolUse use{.one_call = !body.boolean("parallel_tool_calls", true)};
  const Json* tools = body.find("tools");
  const bool offered = tools != nullptr && !tools->empty();
  const Json* choice = body.find("tool_choice");
  if (!offered && choice != nullptr && *choice != "none" && *choice != "auto")
    Body::fail("tool_choice", fmt::format("tool_choice is {} without tools", choice->dump()));
  if (!offered || (choice != nullptr && *choice == "none")) return use;
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const Json& function = function_of((*tools)[i], "tools", where);
    const Json* parameters = member(function, "parameters");
    if (parameters != nullptr && !parameters->is_object())
      Body::fail("tools", where + ".function.parameters is no object");
    const Json* description = member(function, "description");
    if (description != nullptr && !description->is_string())
      Body::fail("tools", where + ".function.description is no text");
    const Json* strict = member(function, "strict");
    if (strict != nullptr && !strict->is_boolean())
      Body::fail("tools", where + ".function.strict is neither true nor false");
    const std::string name = function["name"].get<std::string>();
    if (std::ranges::find(use.names, name) != use.names.end())
      Body::fail("tools",
                 fmt::format("{}.function.name is '{}', as of a tool before", where, name));
    use.names.push_back(name);
    use.functions.push_back({.name = name,
                             .parameters = parameters == nullptr ? Json() : *parameters,
                             .strict = strict != nullptr && *strict == true,
                             .place = where + ".function"});
  }
  if (choice != nullptr) apply_choice(*choice, use);
  if (!service.chat->knows_tools()) {
    Body::fail("tools",
               fmt::format("tools: the chat template of {} does not know tools", service.name));
  }
  use.tools = *tools;
  return use;
}

ChatRequest chat_request(const Service& service, const Body& body) {
  if (service.chat == nullptr) {
    throw ApiError(400, "the model " + service.name + " has no chat template: use /v1/completions");
  }
  ChatRequest request{.use = tool_use(service, body)};
  ChatMessages conversation{.messages = messages_of(*body.find("messages")),
                            .tools = request.use.tools};
  if (const Json* variables = body.find("chat_template_kwargs"))
    conversation.variables = *variables;
  if (const auto effort = body.string("reasoning_effort"))
    conversation.variables["reasoning_effort"] = *effort;
  request.prompt = service.chat->encode_conversation(conversation);
  request.marks = service.marks;
  const auto special = [&](const std::string& mark) {
    const auto id = service.tokenizer().find(mark);
    return id && service.tokenizer().is_special(*id);
  };
  if (!request.marks.open.empty()) {
    // A template may open the reasoning itself.
    const size_t tail = std::min<size_t>(request.prompt.size(), 16);
    const std::vector<int32_t> last(request.prompt.end() - static_cast<ptrdiff_t>(tail),
                                    request.prompt.end());
    std::string text = service.tokenizer().decode(last, {.skip_special = false});
    text.resize(trim_blanks(text, text.size()));
    request.marks.opened = text.ends_with(request.marks.open);
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
