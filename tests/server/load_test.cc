// The load generator: what it sends, what it takes for a right answer, and that a run's numbers add
// up.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>

#include "braid/server/load/load_run.h"
#include "server/fixture.h"

namespace braid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string chunk(const std::string& choices, const std::string& more = "") {
  return R"({"id":"a","object":"text_completion","created":1,"choices":[)" + choices + "]" + more +
         "}";
}
std::string piece(const std::string& text) {
  return chunk(R"({"index":0,"text":")" + text + R"(","finish_reason":null})");
}
const std::string kEnd = chunk(R"({"index":0,"text":"","finish_reason":"stop"})");
const std::string kUsage =
    chunk("", R"(,"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5})");

StreamFacts facts_of(const std::vector<std::string>& events) {
  StreamCheck check(false);
  double time = 0;
  for (const std::string& event : events) check.event(event, ++time);
  check.end();
  return check.facts();
}

TEST(StreamCheck, TakesARightStream) {
  const StreamFacts facts = facts_of({piece("x"), piece(""), piece("y"), kEnd, kUsage, "[DONE]"});
  EXPECT_EQ(facts.fault, "");
  EXPECT_EQ(facts.text, "xy");
  EXPECT_EQ(facts.finish_reason, "stop");
  EXPECT_THAT(facts.times, ElementsAre(1, 3));
  EXPECT_EQ(facts.prompt_tokens, 3);
  EXPECT_EQ(facts.answer_tokens, 2);
}

TEST(StreamCheck, NamesWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{piece("x"), kEnd, kUsage}, "no [DONE]"},
      {{piece("x"), kUsage, "[DONE]"}, "usage before the finish_reason"},
      {{piece("x"), "[DONE]"}, "no finish_reason"},
      {{piece("x"), kEnd, kEnd, "[DONE]"}, "second finish_reason"},
      {{kEnd, piece("x"), "[DONE]"}, "text behind the finish_reason"},
      {{piece("x"), kEnd, kUsage, piece(""), "[DONE]"}, "behind the usage"},
      {{piece("x"), kEnd, "[DONE]", piece("")}, "behind [DONE]"},
      {{piece("x"), "{", kEnd, "[DONE]"}, "no JSON object"},
      {{R"({"id":"a","object":"chat.completion.chunk","created":1,"choices":[]})"},
       "text_completion"},
      {{R"({"id":"a","object":"text_completion","created":1})"}, "without a list of choices"},
      {{piece("x"), R"({"id":"b","object":"text_completion","created":1,"choices":[]})"},
       "different ids"},
      {{chunk(R"({"index":1,"text":"x"})")}, "another index"},
      {{chunk(R"({"index":0})")}, "without a text"},
      {{chunk(R"({"index":0,"text":5})")}, "text is no text"},
      {{chunk(R"({"index":0,"text":"","finish_reason":"abort"})")}, "finish_reason \"abort\""},
      {{kEnd, chunk("", R"(,"usage":{"prompt_tokens":3})")}, "without its token counts"},
  };
  for (const auto& [events, fault] : cases) EXPECT_THAT(facts_of(events).fault, HasSubstr(fault));
  const StreamFacts failed = facts_of({piece("x"), R"({"error":{"message":"gone"}})", "[DONE]"});
  EXPECT_EQ(failed.error, "gone");
  EXPECT_EQ(failed.fault, "") << "the error says it all";
}

TEST(EventReader, GivesTheSameEventsHoweverTheBytesAreCut) {
  const std::string bytes =
      ": wait\n\ndata: {\"a\"}\r\n\r\ndata:b\ndata: c\n\nevent: x\ndata: [DONE]\n\n";
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      std::vector<std::string> events;
      EventReader reader;
      const auto keep = [&](std::string_view data) { events.emplace_back(data); };
      reader.push(std::string_view(bytes).substr(0, first), keep);
      reader.push(std::string_view(bytes).substr(first, second - first), keep);
      reader.push(std::string_view(bytes).substr(second), keep);
      ASSERT_THAT(events, ElementsAre("{\"a\"}", "b\nc", "[DONE]"));
    }
  }
}

TEST(LoadRequests, ArriveAsAskedAndRepeatWithTheSeed) {
  LoadConfig config{.requests = 4000, .rate = 20};
  const std::vector<double> random = arrival_times(config);
  EXPECT_TRUE(std::ranges::is_sorted(random));
  EXPECT_NEAR(random.back(), 200, 20);
  // Gaps of a Poisson process deviate by as much as their mean.
  double squares = 0;
  for (size_t i = 1; i < random.size(); ++i) squares += std::pow(random[i] - random[i - 1], 2);
  EXPECT_NEAR(std::sqrt(squares / 4000 - 0.05 * 0.05), 0.05, 0.01);
  config.arrivals = Arrivals::constant;
  EXPECT_NEAR(arrival_times(config)[100], 5, 1e-9);
  config.rate = 0;
  EXPECT_EQ(arrival_times(config)[100], 0);

  config = {.dataset = DatasetKind::shared_prefix,
            .requests = 50,
            .input_len = 10,
            .output_len = 100,
            .range_ratio = 0.5,
            .prefix_len = 20,
            .prefixes = 2};
  const auto one = load_requests(config, {5, 1}), two = load_requests(config, {5, 1});
  std::set<std::string> prefixes, texts;
  for (size_t i = 0; i < one.size(); ++i) {
    const std::string text = one[i].prompt;
    EXPECT_EQ(text, two[i].prompt.get<std::string>());
    EXPECT_GE(one[i].output_len, 50);
    EXPECT_LE(one[i].output_len, 150);
    size_t at = 0;
    for (int word = 0; word < 20; ++word) at = text.find(' ', at) + 1;
    prefixes.insert(text.substr(0, at));
    texts.insert(text);
  }
  EXPECT_EQ(prefixes.size(), 2u);
  EXPECT_GT(texts.size(), 45u);
}

TEST(LoadRequests, OfAFileNameTheLineThatIsWrong) {
  const golden::Folder folder("load");
  LoadConfig config{
      .dataset = DatasetKind::jsonl, .file = folder.path() / "x.jsonl", .requests = 3};
  const auto error_of = [&](const std::string& text) -> std::string {
    std::ofstream(config.file) << text;
    try {
      load_requests(config, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("{\"prompt\": \"a\"}\n{\"prompt\": 5}\n"),
              HasSubstr("x.jsonl:2: has neither"));
  EXPECT_THAT(error_of("{\"prompt\""), HasSubstr("x.jsonl:1"));
  EXPECT_THAT(error_of("{\"prompt\": \"a\", \"max_tokens\": 0}"), HasSubstr("max_tokens is 0"));
  EXPECT_THAT(error_of("\n"), HasSubstr("holds no requests"));
  EXPECT_EQ(error_of("{\"prompt\": \"a\"}\n\n{\"messages\": [1], \"max_tokens\": 7}"), "");
  const auto requests = load_requests(config, {});
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].output_len, 7);
  EXPECT_EQ(requests[2].prompt, "a") << "from the beginning again";
  config.chat = false;
  EXPECT_THAT(error_of("{\"messages\": [1]}"), HasSubstr("/completions does not take"));
}

LoadConfig load_on(int port) {
  return {.port = port, .requests = 12, .input_len = 20, .output_len = 9, .ignore_eos = true};
}

TEST_F(ServerTest, ALoadGetsAllItsAnswersAndTheNumbersAddUp) {
  for (const bool chat : {true, false}) {
    for (const double rate : {0.0, 200.0}) {
      LoadConfig config = load_on(server_->port());
      config.chat = chat;
      config.rate = rate;
      config.concurrency = 5;
      config.goodput.e2el = 1e-6;
      const LoadRun run = run_load(config);
      ASSERT_EQ(run.results.size(), 12u);
      EXPECT_LE(run.most_at_once, 5);
      for (const LoadResult& result : run.results) {
        EXPECT_EQ(result.error, "") << result.detail;
        EXPECT_EQ(result.facts.answer_tokens, 9);
      }
      const Json report = load_report(run, true);
      EXPECT_EQ(report["model_id"], "tiny");
      EXPECT_EQ(report["completed"], 12);
      EXPECT_EQ(report["total_output_tokens"], 12 * 9);
      EXPECT_NEAR(report["total_input_tokens"].get<double>() / 12, 20, 6) << "as --input-len says";
      EXPECT_EQ(report["request_goodput"], 0);
      EXPECT_LE(report["median_ttft_ms"], report["p99_ttft_ms"]);
      EXPECT_LE(report["mean_ttft_ms"], report["mean_e2el_ms"]);
      EXPECT_LE(report["p99_e2el_ms"], 1e3 * report["duration"].get<double>() + 1);
      EXPECT_EQ(report["generated_texts"].size(), 12u);
    }
  }
}

TEST_F(ServerTest, ALoadCountsItsErrorsByKind) {
  LoadConfig config = load_on(server_->port());
  config.model = "other";
  EXPECT_THROW(run_load(config), Error) << "the first requests fail";
  config.model = "";
  config.extra = {{"stop", Json::array({""})}};  // 400
  EXPECT_THROW(run_load(config), Error);
  // A file is not probed with words, and without warm-up nothing is sent before the run.
  const golden::Folder folder("load");
  config.file = folder.path() / "x.jsonl";
  std::ofstream(config.file) << "{\"prompt\": \"a\"}\n";
  config.dataset = DatasetKind::jsonl;
  config.warm_up = 0;
  const Json report = load_report(run_load(config), true);
  EXPECT_EQ(report["failed"], 12);
  EXPECT_EQ(report["errors_by_kind"]["status 400"], 12);
  EXPECT_THAT(report["errors"][0].get<std::string>(), HasSubstr("at least one character"));
}

TEST(LoadRun, SeesServersThatDoNotAnswer) {
  // A socket that listens and says nothing.
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const golden::Folder folder("load");
  LoadConfig config = load_on(ntohs(address.sin_port));
  config.model = "x";
  config.file = folder.path() / "x.jsonl";
  std::ofstream(config.file) << "{\"prompt\": \"a\"}\n";
  config.dataset = DatasetKind::jsonl;
  config.requests = 2;
  config.warm_up = 0;
  config.timeout = 0.2;
  EXPECT_EQ(run_load(config).results[1].error, "connect") << "nobody listens yet";
  ASSERT_EQ(::listen(silent, 8), 0);
  EXPECT_EQ(run_load(config).results[1].error, "timeout");
  ::close(silent);
}

}  // namespace
}  // namespace braid::server
