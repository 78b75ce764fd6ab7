#include "braid/server/routes/answer_grammar.h"

#include <fmt/format.h>

#include "braid/grammar/grammar_mask.h"
#include "braid/grammar/grammar_tag.h"

namespace braid::server {
namespace {

constexpr double kLook = 1;  // seconds between two looks whether the client is still there

std::string text_at(const Json& object, const char* name, const std::string& field,
                    const std::string& where) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_string())
    Body::fail(field, fmt::format("{}.{} is no text", where, name));
  return it->get<std::string>();
}

// A format with its schema in the member `inner`, or beside the type if `inner` is null.
std::string tag_of(const Json& format, const std::string& field, const std::string& where,
                   const char* inner) {
  const std::string type = text_at(format, "type", field, where);
  if (type == "text") return "";
  if (type == "json_object") return object_tag();
  if (type != "json_schema") {
    Body::fail(field, fmt::format("{}.type is '{}', wanted text, json_object or json_schema", where,
                                  type));
  }
  const Json* holder = inner == nullptr ? &format : member(format, inner);
  const std::string place = inner == nullptr ? where : where + "." + inner;
  if (holder == nullptr || !holder->is_object()) Body::fail(field, place + " is no object");
  const auto schema = holder->find("schema");
  if (schema == holder->end()) Body::fail(field, place + ".schema is missing");
  return schema_tag(*schema);
}

std::string format_tag(const Json& format) {
  return tag_of(format, "response_format", "response_format", "json_schema");
}

std::string text_tag(const Json& text) {
  const Json* format = member(text, "format");
  if (format == nullptr) return "";
  if (!format->is_object()) Body::fail("text", "text.format is no object");
  return tag_of(*format, "text", "text.format", nullptr);
}

std::string outputs_tag(const Json& outputs) {
  std::string tag, first;
  for (const auto& [name, value] : outputs.items()) {
    if (value.is_null()) continue;
    const std::string where = "structured_outputs." + name;
    if (!first.empty()) {
      Body::fail("structured_outputs",
                 fmt::format("structured_outputs has {} and {}, wanted one", first, name));
    }
    first = name;
    if (name == "json") {
      Json schema = value;
      if (schema.is_string()) schema = Json::parse(value.get<std::string>(), nullptr, false);
      if (schema.is_discarded()) Body::fail("structured_outputs", where + " is no JSON");
      tag = schema_tag(schema);
    } else if (name == "json_object") {
      if (value != true) Body::fail("structured_outputs", where + " is not true");
      tag = object_tag();
    } else if (name == "regex") {
      tag = regex_tag(text_at(outputs, "regex", "structured_outputs", "structured_outputs"));
    } else if (name == "grammar") {
      tag = ebnf_tag(text_at(outputs, "grammar", "structured_outputs", "structured_outputs"));
    } else if (name == "choice") {
      if (!value.is_array()) Body::fail("structured_outputs", where + " is no list of texts");
      std::vector<std::string> texts;
      for (const Json& text : value) {
        if (!text.is_string()) Body::fail("structured_outputs", where + " is no list of texts");
        texts.push_back(text.get<std::string>());
      }
      tag = choice_tag(texts);
    } else {
      Body::fail("structured_outputs",
                 fmt::format("{} is not supported, only json, json_object, regex, choice and "
                             "grammar are",
                             where));
    }
  }
  return tag;
}

// Fields that keep an answer from ending.
void check_ends(const Body& body, const AnswerTag& tag) {
  if (body.boolean("ignore_eos", false))
    Body::fail("ignore_eos", fmt::format("ignore_eos beside {}: its answers end", tag.field));
  if (body.integer("min_tokens", 0) > 0)
    Body::fail("min_tokens",
               fmt::format("min_tokens beside {}: its answers end by themselves", tag.field));
}

// Lets the tag compile and waits; null after the client has gone. Fails with ApiError 400 if the
// grammar passes a limit, or in a build without grammars.
boost::asio::awaitable<std::shared_ptr<const CompiledGrammar>> compiled(Service& service,
                                                                        Exchange& exchange,
                                                                        const AnswerTag& tag) {
  if (service.grammars == nullptr)
    Body::fail(tag.field, tag.field + ": this server was built without grammars");
  const auto pending = service.grammars->compile(tag.tag, exchange.waker());
  while (true) {
    try {
      if (auto grammar = pending->get()) co_return grammar;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      throw ApiError(400, fmt::format("{}: {}", tag.field, error.what()), tag.field);
    }
    co_await exchange.wait(kLook);
    if (exchange.gone()) co_return nullptr;
    service.check_engine();
  }
}

}  // namespace

AnswerTag answer_tag(const Body& body) {
  AnswerTag tag;
  const auto take = [&](const char* field, std::string (*read)(const Json&)) {
    const Json* value = body.find(field);
    if (value == nullptr) return;
    std::string found;
    try {
      found = read(*value);
    } catch (const Error& error) {
      Body::fail(field, fmt::format("{}: {}", field, error.what()));
    }
    if (found.empty()) return;
    if (!tag.tag.empty())
      Body::fail(field, fmt::format("{} beside {}: wanted one", field, tag.field));
    tag = {std::move(found), field};
  };
  take("response_format", format_tag);
  take("text", text_tag);
  take("structured_outputs", outputs_tag);
  if (!tag.tag.empty()) check_ends(body, tag);
  return tag;
}

AnswerTag answer_tag(const Body& body, const ChatRequest& chat) {
  AnswerTag tag = answer_tag(body);
  if (chat.format == CallFormat::none) return tag;
  if (!tag.tag.empty()) Body::fail(tag.field, tag.field + " beside tools is not supported");
  tag.field = chat.use.must_call ? "tool_choice" : "tools";
  try {
    tag.tag = calls_tag(chat.use.functions, {.format = chat.format,
                                             .must = chat.use.must_call,
                                             .one = chat.use.one_call,
                                             .mark_token = chat.mark_token});
  } catch (const Error& error) {
    Body::fail("tools", error.what());
  }
  if (!tag.tag.empty()) check_ends(body, tag);
  return tag;
}

boost::asio::awaitable<bool> constrain(Service& service, Exchange& exchange, const AnswerTag& tag,
                                       const ReasoningMarks& marks,
                                       std::vector<AnswerRequest>& requests) {
  if (tag.tag.empty()) co_return true;
  const auto grammar = co_await compiled(service, exchange, tag);
  if (grammar == nullptr) co_return false;
  for (AnswerRequest& request : requests)
    request.mask = grammar_mask(grammar, service.grammars->spelling(), marks);
  co_return true;
}

}  // namespace braid::server
