// A server with approximate prompts (`--keep`) says so in answers, logs and counts, and answers
// exact requests beside.
#include <random>

#include "server/fixture.h"
#include "server/served_process.h"

namespace braid::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class ApproximateServer : public testing::Test {
 protected:
  ApproximateServer() {
    write_hf_folder(golden::load_random_model("llama3_gqa"), folder_.path());
    ServerConfig config = config_for(folder_.path().string());
    config.engine.thinning = {.keep = {0.5}, .groups = {2}};
    server_.emplace(config, [](const std::string&) {});
    server_->load();
  }
  Reply post(Json body) {
    body.update({{"prompt", std::string(200, 'z')}, {"max_tokens", 3}, {"ignore_eos", true}});
    Client client(server_->port());
    return client.post("/v1/completions", body.dump());
  }
  std::string metrics() {
    Client client(server_->port());
    return client.get("/metrics").body;
  }

  const golden::Folder folder_{"approximate_server"};
  std::optional<Server> server_;
};

TEST_F(ApproximateServer, AnswersSayWhatWasLeftOut) {
  const Json first = post({}).json();
  const Json& made = first.at("approximate");
  EXPECT_EQ(made.at("keep"), Json({0.5}));
  EXPECT_EQ(made.at("groups"), Json({2}));
  EXPECT_EQ(made.at("importance"), "own");
  EXPECT_LT(made.at("pairs"), 1);
  EXPECT_LT(made.at("far_keys"), 1);
  EXPECT_THAT(metrics(), HasSubstr("braid:approximate_requests_total{model_name=\"tiny\"} 1\n"));

  const std::string stream = post({{"stream", true}, {"cache_salt", "another"}}).body;
  EXPECT_THAT(stream, HasSubstr("\"finish_reason\":\"length\"}],\"approximate\":{\"keep\":[0.5]"));

  // An exact request finds approximate pages alone.
  const Json exact = post({{"exact", true}}).json();
  EXPECT_FALSE(exact.contains("approximate"));
  EXPECT_EQ(exact["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const int64_t passed = (exact["usage"]["prompt_tokens"].get<int64_t>() - 1) / 64 * 64;
  EXPECT_GT(passed, 0);
  EXPECT_THAT(
      metrics(),
      HasSubstr(fmt::format(
          "braid:prefix_cache_approximate_passed_total{{model_name=\"tiny\"}} {}\n", passed)));
  Client client(server_->port());
  EXPECT_EQ(client.get("/stats").json()["approximate_passed"], passed);
  EXPECT_THAT(post({{"exact", true}, {"stream", true}}).body, Not(HasSubstr("approximate")));
  EXPECT_EQ(post({{"exact", 1}}).status, 400);
  expect_nothing_left(server_->port());
}

// The share of pairs that `braid serve` reads of a prompt with 1,200 tokens. Of three layers the
// middle one thins.
double pairs_read(const std::vector<std::string>& options) {
  constexpr int kTokens = 1200;
  const golden::Folder folder("approximate_steps");
  write_hf_folder(golden::load_random_model("llama3_gqa"), folder.path());
  Json config = Json::parse(std::ifstream(folder.path() / "config.json"));
  config["max_position_embeddings"] = 2048;
  std::ofstream(folder.path() / "config.json") << config.dump();
  std::vector<std::string> words = {"--device", "cpu", "--keep", "0.5", "--levels", "2"};
  words.insert(words.end(), options.begin(), options.end());
  ServedProcess server(folder.path().string(), (folder.path() / "log").string(), words);
  EXPECT_GT(server.port(), 0) << server.said();
  std::mt19937 random(1);
  Json ids = Json::array();
  for (int n = 0; n < kTokens; ++n) ids.push_back(random() % 250);
  const Json body = {{"prompt", ids}, {"max_tokens", 2}, {"ignore_eos", true}};
  Client client(server.port());
  const Reply reply = client.post("/v1/completions", body.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  const Json answer = reply.json();
  EXPECT_EQ(answer["usage"]["prompt_tokens"], kTokens);
  return answer.at("approximate").at("pairs");
}

// The same, if the middle layer leaves out so many pairs.
constexpr double without(double left_out) {
  constexpr double kAll = 3 * 1200 * 1201 / 2.0;
  return (kAll - left_out) / kAll;
}

// A prompt is one step, unless --max-step-tokens says less: later steps read all keys of the steps
// before. Each of a step's four parts reads half of every earlier part.
TEST(ApproximateServe, TakesAPromptWhole) {
  EXPECT_NEAR(pairs_read({}), without(6 * 300 * 150), 1e-9);
  EXPECT_NEAR(pairs_read({"--max-step-tokens", "512"}), without(2 * 6 * 128 * 64 + 6 * 44 * 22),
              1e-9);
}

}  // namespace
}  // namespace braid::server
