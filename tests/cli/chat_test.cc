// The chat, driven through a terminal.
#include <thread>

#include "cli/program.h"
#include "cli/terminal.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kPrompt = "> ";
constexpr const char* kStatistics = "; context ";

class ChatTest : public CliTest {
 protected:
  ChatTest() {
    setenv("XDG_STATE_HOME", path("state").c_str(), 1);
    chat_ = folder_ / "chat";
    fs::create_directories(chat_);
    fs::copy(hf(), chat_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    std::ofstream(chat_ / "chat_template.jinja")
        << "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
  }

  std::vector<std::string> arguments(std::vector<std::string> more) const {
    std::vector<std::string> all = {"run",      "-m",  chat_.string(), "--ignore-eos",
                                    "--device", "cpu", "--threads",    "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The conversation so far, by /save: [role, content].
  std::vector<std::pair<std::string, std::string>> saved(Terminal& terminal) {
    const std::string file = path(fmt::format("saved{}.json", ++saves_));
    terminal.type("/save " + file + "\r");
    terminal.see(" are in ");
    std::vector<std::pair<std::string, std::string>> all;
    const json report = json::parse(read(file));
    for (const json& m : report["messages"]) all.emplace_back(m["role"], m["content"]);
    return all;
  }
  std::vector<std::string> users(Terminal& terminal) {
    std::vector<std::string> texts;
    for (const auto& [role, text] : saved(terminal)) {
      if (role == "user") texts.push_back(text);
    }
    return texts;
  }

  fs::path chat_;
  static inline int saves_ = 0;
};

TEST_F(ChatTest, ItSaysWhatItIsAndHowToGoOn) {
  Terminal terminal(arguments({"-n", "4"}));
  EXPECT_THAT(terminal.see(kPrompt), HasSubstr("/help lists commands"));
  terminal.type("/help\r");
  EXPECT_THAT(terminal.see("/exit"), HasSubstr("/clear"));
  terminal.type("/clr\r");
  terminal.see("did you mean /clear?");
  terminal.see(kPrompt);
  terminal.type("\x04");
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(ChatTest, LinesAreEditedAndRemembered) {
  Terminal terminal(arguments({"-n", "2"}));
  terminal.see(kPrompt);
  // Home, right twice, delete; End; left; insert.
  terminal.type("heello wrld\x01\x1b[C\x1b[C\x1b[3~\x05\x1b[D\x1b[D\x1b[Do\r");
  terminal.see(kStatistics);
  terminal.type("gone\x15kept\r");
  terminal.see(kStatistics);
  terminal.type("\x1b[A\x1b[A\r");  // up twice: the first message again
  terminal.see(kStatistics);
  EXPECT_THAT(users(terminal), ElementsAre("hello world", "kept", "hello world"));
  terminal.type("/bye\r");
  EXPECT_EQ(terminal.status(), 0);
  Terminal later(arguments({"-n", "2"}));
  later.see(kPrompt);
  later.type("\x1b[A\x1b[A\x1b[A\r");  // past /bye and /save
  later.see(kStatistics);
  EXPECT_THAT(users(later), ElementsAre("hello world"));
}

TEST_F(ChatTest, ManyLinesAreOneMessage) {
  Terminal terminal(arguments({"-n", "2"}));
  terminal.see(kPrompt);
  terminal.type("\x1b[200~Summarize:\r\rfirst \xc3\xbc\rsecond\r\x1b[201~");
  terminal.type("\r");
  terminal.see(kStatistics);
  terminal.type("\"\"\"one\rtwo\rthree\"\"\"\r");
  terminal.see(kStatistics);
  terminal.type("a\\\rb\r");
  terminal.see(kStatistics);
  EXPECT_THAT(users(terminal),
              ElementsAre("Summarize:\n\nfirst \xc3\xbc\nsecond", "one\ntwo\nthree", "a\nb"));
}

TEST_F(ChatTest, CtrlCStopsAnAnswerAndKeepsTheChat) {
  // Links so slow that an answer lasts for seconds.
  Terminal terminal(
      arguments({"--system", "Be brief.", "--tp", "2", "--link-gbps", "1", "--link-us", "5000"}));
  terminal.see(kPrompt);
  terminal.type("half a line\x03");
  terminal.see("^C");
  terminal.see(kPrompt);
  terminal.type("\x03");
  terminal.see("Ctrl-D or /exit ends the chat");
  terminal.see(kPrompt);
  terminal.type("Talk without end\r");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  terminal.press("\x03");
  const std::string shown = terminal.see("(stopped)");
  EXPECT_GT(shown.size(), std::string("Talk without end").size() + 20)
      << "as it is made: " << shown;
  terminal.see(kStatistics);
  terminal.type("/stats\r");
  terminal.see("3 messages");
  terminal.see("temperature ");
  terminal.type("/system Be long.\r");
  terminal.type("/system\r");
  terminal.see("\nBe long.");
  terminal.type("/clear\r");
  terminal.see("the system message stays");
  const auto messages = saved(terminal);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].second, "Be long.");
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(ChatTest, TheModelsOwnSamplingElseAWarmOne) {
  const auto seen = [&](const std::string& generation_config) {
    std::ofstream(chat_ / "generation_config.json") << generation_config;
    Terminal terminal(arguments({"-n", "2"}));
    terminal.see(kPrompt);
    terminal.type("/stats\r");
    terminal.see("temperature ");
    return terminal.see("top-k ");
  };
  EXPECT_THAT(seen(R"({"bos_token_id": 256, "eos_token_id": 258})"), HasSubstr("0.7,"));
  EXPECT_THAT(seen(R"({"do_sample": true, "temperature": 0.3})"), HasSubstr("0.3,"));
}

TEST_F(ChatTest, OptionsOfOneAnswerAreRefused) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--json"}, {"--logprobs", "2"}}) {
    Terminal terminal(arguments(more));
    terminal.see(more[0] + " goes with a prompt");
    EXPECT_EQ(terminal.status(), 2);
  }
}

TEST_F(ChatTest, ALongPromptSaysHowFarItIs) {
  json config = json::parse(read(chat_ / "config.json"));
  config["max_position_embeddings"] = 4096;
  std::ofstream(chat_ / "config.json") << config;
  std::ofstream(folder_ / "long.txt") << std::string(2600, 'x');
  Terminal terminal(arguments(
      {"-f", path("long.txt"), "-n", "1", "--tp", "2", "--link-gbps", "1", "--link-us", "100000"}));
  EXPECT_THAT(terminal.see(" tokens"), HasSubstr("reading: "));
  terminal.see("; answer 1 token");
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(ChatTest, LaterTurnsComputeOnlyWhatIsNew) {
  Terminal terminal(arguments({"-n", "4", "--temp", "0"}));
  terminal.see(kPrompt);
  terminal.type("hello world\r");
  EXPECT_EQ(terminal.see(kStatistics).find("kept"), std::string::npos);
  terminal.type("hello world\r");
  EXPECT_THAT(terminal.see(kStatistics), HasSubstr(" kept)"));
}

TEST_F(ChatTest, AFullContextDropsTheOldestTurns) {
  Terminal terminal(arguments({"-n", "16", "--ctx", "128", "--system", "Be brief."}));
  terminal.see(kPrompt);
  std::string shown;
  for (int i = 0; i < 6; ++i) {
    terminal.type(fmt::format("message {} of several words\r", i));
    shown += terminal.see(kStatistics);
  }
  EXPECT_THAT(shown, HasSubstr("(the context of 128 tokens is full: the "));
  const auto messages = saved(terminal);
  EXPECT_EQ(messages.front().first, "system");
  EXPECT_LT(messages.size(), 13u);
  EXPECT_EQ(messages[messages.size() - 2].second, "message 5 of several words");
  // One message that is too long alone is refused, and the chat goes on.
  terminal.type(std::string(900, 'x') + "\r");
  terminal.see("the context holds 128");
  terminal.type("short\r");
  terminal.see(kStatistics);
}

TEST_F(ChatTest, ABaseModelContinuesTheText) {
  const fs::path base = folder_ / "base";
  fs::copy(hf(), base, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  json config = json::parse(read(base / "tokenizer_config.json"));
  config.erase("chat_template");
  std::ofstream(base / "tokenizer_config.json") << config;
  Terminal terminal(
      {"run", "-m", base.string(), "--ignore-eos", "--device", "cpu", "-n", "4", "-t", "1"});
  EXPECT_THAT(terminal.see(kPrompt), HasSubstr("it continues what you write"));
  terminal.type("hello world\r");
  terminal.see(kStatistics);
  terminal.type("/system x\r");
  terminal.see("takes no system message");
  terminal.see(kPrompt);
  terminal.type("\x04");
  EXPECT_EQ(terminal.status(), 0);
}

}  // namespace
}  // namespace braid::golden
