#include "braid/chat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "braid/base/similar.h"
#include "braid/engine/chat_window.h"
#include "braid/interrupt.h"
#include "braid/io/text_file.h"
#include "braid/line_editor.h"
#include "braid/progress.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

constexpr int kPatience = 4;  // presses of Ctrl-C in an answer, before the program ends

constexpr const char* kHelp =
    "/help            this list\n"
    "/clear           forgets the conversation\n"
    "/system TEXT     sets the system message; without TEXT shows it\n"
    "/stats           tokens, speed and settings so far\n"
    "/save FILE       writes the conversation as JSON\n"
    "/exit            ends the chat, as /bye, /quit and Ctrl-D do\n"
    "Ctrl-C stops an answer. A line that ends with \\ goes on in the next one; text between two\n"
    "lines of \"\"\" is one message, and so is what is pasted.\n";

// One line for people; the answers are on standard output.
template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  std::fprintf(stderr, "%s\n", fmt::format(format, std::forward<Args>(args)...).c_str());
}

class Chat {
 public:
  Chat(const RunOptions& options, LoadedModel& loaded, Generator& generator, ParallelRun& parallel)
      : options_(options),
        loaded_(loaded),
        generator_(generator),
        parallel_(parallel),
        conversation_(generator.conversation()) {
    if (chat_template_source(loaded.model.file())) template_.emplace(loaded);
    if (options.system) set_system(*options.system);
  }

  void run() {
    greet();
    LineEditor editor(history_file());
    for (std::string text; read(editor, text);) {
      if (text.find_first_not_of(" \t\n") == std::string::npos) continue;
      editor.remember(text);
      if (is_command(text)) {
        if (!obey(text)) break;
      } else {
        answer(text);
      }
    }
  }

 private:
  void greet() const {
    const ModelConfig& c = loaded_.model.config();
    note("{}, {:.0f} M parameters; the context holds {} tokens{}",
         c.name.empty() ? loaded_.model.source().path() : c.name,
         static_cast<double>(loaded_.model.parameters()) / 1e6, generator_.max_context(),
         template_ ? "" : "\nIt has no chat template: it continues what you write.");
    note("/help lists commands; Ctrl-C stops an answer, Ctrl-D ends the chat");
  }

  // A message, over several lines if marked. False at the end of input.
  bool read(LineEditor& editor, std::string& text) {
    constexpr std::string_view kQuotes = "\"\"\"";
    text.clear();
    bool quoted = false, first = true;
    for (std::string line;;) {
      interrupt_.clear();
      const LineEditor::Outcome outcome = editor.read(first ? "> " : "... ", line);
      if (outcome == LineEditor::Outcome::end) {
        print("\n");
        return false;
      }
      if (outcome == LineEditor::Outcome::interrupted) {
        print("^C\n");
        if (first && !editor.dropped_text()) note("Ctrl-D or /exit ends the chat");
        text.clear();
        quoted = false;
        first = true;
        continue;
      }
      if (first && line.starts_with(kQuotes)) {
        quoted = true;
        line.erase(0, kQuotes.size());
      }
      first = false;
      if (quoted && line.ends_with(kQuotes)) {
        line.resize(line.size() - kQuotes.size());
        text += line;
        return true;
      }
      const bool goes_on = !quoted && line.ends_with('\\');
      if (goes_on) line.pop_back();
      text += line;
      if (!quoted && !goes_on) return true;
      if (!text.empty()) text += '\n';
    }
  }

  // "/clear" is a command, "/usr/bin/env is what?" is none.
  static bool is_command(const std::string& text) {
    if (!text.starts_with('/') || text.find('\n') != std::string::npos) return false;
    const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz?", 1);
    return end == std::string::npos || text[end] == ' ';
  }

  // False ends the chat.
  bool obey(const std::string& text) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string name = text.substr(0, space);
    std::string rest = text.substr(space);
    rest.erase(0, std::min(rest.find_first_not_of(' '), rest.size()));
    const std::vector<std::string> names = {"/help", "/clear", "/system", "/stats",
                                            "/save", "/exit",  "/bye",    "/quit"};
    try {
      if (name == "/exit" || name == "/bye" || name == "/quit") return false;
      if (name == "/help" || name == "/?") {
        std::fputs(kHelp, stderr);
      } else if (name == "/clear") {
        clear();
      } else if (name == "/system") {
        rest.empty() ? note("{}", system_text()) : set_system(rest);
      } else if (name == "/stats") {
        stats();
      } else if (name == "/save") {
        save(rest);
      } else {
        const auto near = nearest_name(name, names);
        note("there is no {}{}; /help lists the commands", name,
             near ? fmt::format(": did you mean {}?", *near) : "");
      }
    } catch (const Error& error) {
      note("braid: {}", error.what());
    }
    return true;
  }

  bool has_system() const { return !messages_.empty() && messages_[0].role == "system"; }
  std::string system_text() const {
    return has_system() ? messages_[0].content : "there is no system message";
  }
  void set_system(const std::string& text) {
    require_utf8(text, "the system message");
    if (!template_) {
      fail(ErrorCode::kUnsupported, "a model without a chat template takes no system message");
    }
    if (has_system()) {
      messages_[0].content = text;
    } else {
      messages_.insert(messages_.begin(), {"system", text});
    }
  }
  void clear() {
    messages_.resize(has_system() ? 1 : 0);
    note("the conversation is forgotten{}", has_system() ? ", the system message stays" : "");
  }

  void stats() const {
    const SamplingParams& s = options_.request.sampling;
    note("{} messages, {} of {} tokens of the context", messages_.size(),
         conversation_.ids().size(), generator_.max_context());
    note(
        "{} tokens of prompts computed, {} kept from earlier turns; {} tokens of answers, {:.1f} "
        "tokens/s",
        prompt_tokens_, reused_tokens_, answer_tokens_,
        decode_seconds_ > 0 ? static_cast<double>(decoded_) / decode_seconds_ : 0.0);
    note("temperature {}, top-k {}, top-p {}, min-p {}, repetition penalty {}, seed {}",
         s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.seed);
  }

  void save(const std::string& path) const {
    if (path.empty()) fail(ErrorCode::kInvalidArgument, "/save wants the name of a file");
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
      fail(ErrorCode::kInvalidArgument, "{} is there already: name another file", path);
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ChatMessage& m : messages_)
      list.push_back({{"role", m.role}, {"content", m.content}});
    const nlohmann::ordered_json all = {{"model", loaded_.model.source().path()},
                                        {"messages", std::move(list)}};
    write_file(path, all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    note("{} messages are in {}", messages_.size(), path);
  }

  std::vector<int32_t> encode(const std::vector<ChatMessage>& messages) const {
    if (template_) return template_->encode(messages);
    std::string text;
    for (const ChatMessage& m : messages) {
      if (m.role == "user" && !text.empty()) text += '\n';
      text += m.content;
    }
    return loaded_.tokenizer.encode(text);
  }

  // The longest prompt, in tokens, that leaves room for an answer.
  int64_t most_prompt() const {
    const int64_t context = generator_.max_context();
    const int64_t wanted = options_.request.max_tokens > 0 ? options_.request.max_tokens : 512;
    return context - std::max<int64_t>(1, std::min(wanted, context / 4));
  }

  void answer(const std::string& text) {
    interrupt_.clear();
    Progress progress;
    parallel_.watch_cores();
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", text});
    try {
      require_utf8(text, "the message");
      Request request = options_.request;
      const int dropped = drop_oldest_turns(
          messages, most_prompt(), [this](const auto& all) { return encode(all); }, request.prompt);
      generator_.check_prompt(request);
      if (dropped > 0) {
        note("(the context of {} tokens is full: the {} oldest messages are dropped)",
             generator_.max_context(), dropped);
      }
      request.sampling.seed += static_cast<uint64_t>(answers_++);
      request.conversation = &conversation_;
      request.continuation = !template_;
      request.on_prompt = [&](int64_t done) {
        progress.show(fmt::format("reading: {} of {} tokens", done, request.prompt.size()));
        return !interrupt_.asked();
      };
      const Generation g = generator_.generate(request, [&](std::string_view piece) {
        progress.clear();
        print(piece);
        return !interrupt_.asked();
      });
      progress.clear();
      if (interrupt_.asked() && g.ids.empty()) {  // the message was not read
        note("(stopped)");
        return;
      }
      messages.push_back({"assistant", g.text});
      messages_ = std::move(messages);
      print("\n");
      report(request, g, interrupt_.asked());
      parallel_.report_approximation(generator_);
      if (!complained_) complained_ = parallel_.report_cores();
    } catch (const Error& error) {  // the conversation goes on without the message
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      progress.clear();
      note("braid: {}", error.what());
    }
  }

  void report(const Request& request, const Generation& g, bool stopped) {
    const auto size = static_cast<int64_t>(request.prompt.size());
    const auto decoded = std::max<int64_t>(0, std::ssize(g.ids) - 1);
    prompt_tokens_ += size - g.reused;
    reused_tokens_ += g.reused;
    answer_tokens_ += std::ssize(g.ids);
    decoded_ += decoded;
    decode_seconds_ += g.timings.decode_seconds;
    if (stopped) note("(stopped)");
    if (g.reason == FinishReason::length && size + std::ssize(g.ids) >= generator_.max_context()) {
      note("(the context of {} tokens is full: the answer ends here; /clear begins anew)",
           generator_.max_context());
    }
    note("{}; context {} of {}\n", speed_line(request, g), size + std::ssize(g.ids),
         generator_.max_context());
  }

  const RunOptions& options_;
  LoadedModel& loaded_;
  Generator& generator_;
  ParallelRun& parallel_;
  Conversation conversation_;
  std::optional<ChatPrompt> template_;
  std::vector<ChatMessage> messages_;
  Interrupt interrupt_{kPatience};  // between answers, too: Ctrl-C ends no chat
  int64_t answers_ = 0;
  bool complained_ = false;  // of busy cores: once
  int64_t prompt_tokens_ = 0, reused_tokens_ = 0, answer_tokens_ = 0, decoded_ = 0;
  double decode_seconds_ = 0;
};

}  // namespace

void chat_loop(const RunOptions& options, LoadedModel& loaded, Generator& generator,
               ParallelRun& parallel) {
  Chat(options, loaded, generator, parallel).run();
}

}  // namespace braid::app
