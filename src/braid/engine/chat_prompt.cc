#include "braid/engine/chat_prompt.h"

#include <algorithm>

#include "braid/io/tokenizer_normalize.h"
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

// Those of the ids that are special tokens; the unknown one may come from any text.
std::vector<int32_t> specials(const Tokenizer& tokenizer, std::vector<int32_t> ids) {
  std::erase_if(
      ids, [&](int32_t id) { return !tokenizer.is_special(id) || id == tokenizer.special().unk; });
  return ids;
}

}  // namespace

ChatPrompt::ChatPrompt(const LoadedModel& loaded)
    : tokenizer_(loaded.tokenizer),
      template_(source_of(loaded), template_tokens(loaded.model.file(), loaded.tokenizer)) {}

ChatPrompt::ChatPrompt(const Tokenizer& tokenizer, ChatTemplate chat_template)
    : tokenizer_(tokenizer), template_(std::move(chat_template)) {}

std::vector<int32_t> ChatPrompt::encode(const std::vector<ChatMessage>& messages) const {
  const std::string mark = free_mark(messages);
  const auto encoded = [&](auto marked) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ChatMessage& m : messages) {
      list.push_back({{"role", m.role}, {"content", marked(m.content)}});
    }
    return tokenizer_.encode(template_.render({.messages = std::move(list)}),
                             {.add_special = false, .parse_special = true, .mark = mark});
  };
  auto ids = encoded([&](const std::string& text) { return tokenizer_.defuse(text, mark); });
  // A template may change or extend what it is given until it spells a special token. With a mark
  // on both sides of every character it cannot: only the template's own tokens are left. The mark
  // in front stands behind a character that no token has, not behind the template's text.
  const auto own = encoded([&](const std::string& text) {
    if (text.empty()) return text;
    return "\uFFFE" + mark + mark_own(text, std::string(text.size(), '\1'), mark);
  });
  if (specials(tokenizer_, ids) != specials(tokenizer_, own)) {
    fail(ErrorCode::kInvalidArgument,
         "the chat template makes special tokens out of the text of a message");
  }
  return ids;
}

}  // namespace braid
