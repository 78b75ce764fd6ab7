#include "braid/engine/chat_prompt.h"

#include <algorithm>

#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

std::string source_of(const LoadedModel& loaded) {
  auto source = chat_template_source(loaded.model.file());
  if (!source) {
    fail(ErrorCode::kUnsupported, "{} has no chat template: run it without --chat",
         loaded.model.source().path());
  }
  return *std::move(source);
}

// The texts that a template knows as bos_token and eos_token.
nlohmann::ordered_json special_tokens(const Tokenizer& tokenizer) {
  const auto text = [&](int32_t id) {
    return id < 0 ? std::string() : std::string(tokenizer.piece(id));
  };
  return {{"bos_token", text(tokenizer.special().bos)},
          {"eos_token", text(tokenizer.special().eos)}};
}

// A Unicode noncharacter that none of the messages has.
std::string free_mark(const std::vector<ChatMessage>& messages) {
  for (char32_t code = 0xFDD0; code <= 0xFDEF; ++code) {
    std::string mark;
    append_utf8(code, mark);
    if (std::ranges::none_of(messages, [&](const ChatMessage& m) {
          return m.content.find(mark) != std::string::npos;
        })) {
      return mark;
    }
  }
  fail(ErrorCode::kInvalidArgument, "the messages use all 32 noncharacters U+FDD0 to U+FDEF");
}

}  // namespace

ChatPrompt::ChatPrompt(const LoadedModel& loaded)
    : tokenizer_(loaded.tokenizer),
      template_(source_of(loaded), special_tokens(loaded.tokenizer)) {}

std::vector<int32_t> ChatPrompt::encode(const std::vector<ChatMessage>& messages) const {
  const std::string mark = free_mark(messages);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& m : messages) {
    list.push_back({{"role", m.role}, {"content", tokenizer_.defuse(m.content, mark)}});
  }
  return tokenizer_.encode(template_.render({.messages = std::move(list)}),
                           {.add_special = false, .parse_special = true, .mark = mark});
}

}  // namespace braid
