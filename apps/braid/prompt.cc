#include "braid/prompt.h"

#include <charconv>

#include "braid/base/error.h"
#include "braid/engine/chat_prompt.h"
#include "braid/io/quoted.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

std::string prompt_text(const RunOptions& options) {
  std::string text;
  if (options.prompt) {
    text = *options.prompt;
  } else {
    text = options.file ? read_file(*options.file) : read_stdin();
  }
  require_utf8(text, options.prompt ? "the prompt" : options.file ? *options.file : "the input");
  return text;
}

// "1 2 3", "1,2,3" or "[1, 2, 3]", as `braid tokenize --json` prints.
std::vector<int32_t> parse_ids(std::string_view text) {
  static constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<int32_t> ids;
  for (size_t at; (at = text.find_first_not_of(kBetween)) != text.npos;) {
    text.remove_prefix(at);
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      fail(ErrorCode::kInvalidArgument, "--prompt-ids has {}, wanted are token ids: 1,2,3",
           quoted(word));
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
  return ids;
}

}  // namespace

bool has_prompt(const RunOptions& options) {
  return options.prompt || options.file || options.prompt_ids;
}

void check_prompt_options(const RunOptions& options) {
  if (options.prompt && options.file) {
    fail(ErrorCode::kInvalidArgument, "-p and -f both give a prompt: wanted one of them");
  }
  if (options.prompt_ids) {
    const char* other = options.prompt          ? "-p"
                        : options.file          ? "-f"
                        : options.chat          ? "--chat"
                        : options.parse_special ? "--parse-special"
                                                : nullptr;
    if (other) fail(ErrorCode::kInvalidArgument, "--prompt-ids goes without {}", other);
  }
  if (options.parse_special && options.chat) {
    fail(ErrorCode::kInvalidArgument,
         "--parse-special goes without --chat: a message spells no special tokens");
  }
}

std::vector<int32_t> prompt_ids(const RunOptions& options, LoadedModel& loaded) {
  if (options.prompt_ids) return parse_ids(*options.prompt_ids);
  const std::string text = prompt_text(options);
  if (text.empty()) fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (!options.chat) {
    return loaded.tokenizer.encode(text, {.parse_special = options.parse_special});
  }
  const ChatPrompt chat(loaded);
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  return chat.encode(messages);
}

}  // namespace braid::app
