// `braid serve --sp`: ranks divide long prompts of a server, and answers are one rank's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "golden/support/forward.h"
#include "golden/support/random_model.h"
#include "server/client.h"
#include "server/served_process.h"

namespace braid::server {
namespace {

class DividedTest : public testing::Test {
 protected:
  void SetUp() override {
    write_hf_folder(golden::load_random_model("smollm2"), folder_.path());
    Json config = Json::parse(std::ifstream(folder_.path() / "config.json"));
    config["max_position_embeddings"] = 2048;
    std::ofstream(folder_.path() / "config.json") << config.dump();
  }
  // Greedy tokens behind prompts of these lengths, asked for at once.
  std::vector<std::string> answers(const std::vector<std::string>& options) {
    std::vector<std::string> words = {"--device", "cpu"};
    words.insert(words.end(), options.begin(), options.end());
    ServedProcess server(folder_.path().string(), (folder_.path() / "log").string(), words);
    EXPECT_GT(server.port(), 0) << server.said();
    std::vector<std::string> texts(kLengths.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < kLengths.size(); ++i) {
      clients.emplace_back([&, i] {
        std::mt19937 random(static_cast<uint32_t>(i));
        Json ids = Json::array();
        for (int n = 0; n < kLengths[i]; ++n) ids.push_back(random() % 300);
        const Json body = {
            {"prompt", ids}, {"max_tokens", 8}, {"temperature", 0}, {"ignore_eos", true}};
        Client client(server.port());
        texts[i] = client.post("/v1/completions", body.dump()).json()["choices"][0]["text"];
      });
    }
    for (std::thread& client : clients) client.join();
    server.signal(SIGTERM);
    EXPECT_EQ(server.status(), 0);
    said_ = server.said();
    return texts;
  }

  // The last one is divided: an engine's ranks keep shorter prompts each.
  const std::vector<int> kLengths = {3, 200, 900};
  golden::Folder folder_{"divided_server"};
  std::string said_;
};

TEST_F(DividedTest, AnswersAreOneRanks) {
  const std::vector<std::string> want = answers({});
  EXPECT_THAT(said_, testing::HasSubstr("steps of 512 tokens at most"));
  for (const char* mode : {"ring", "ulysses"}) {
    EXPECT_EQ(answers({"--sp", mode, "--ranks", "2"}), want) << mode;
    EXPECT_THAT(said_, testing::HasSubstr("steps of 2048 tokens at most"));
  }
}

}  // namespace
}  // namespace braid::server
