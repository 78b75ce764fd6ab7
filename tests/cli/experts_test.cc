// The load of a mixture's experts, as --json and --trace tell it.
#include <numeric>

#include "cli/job_program.h"

namespace braid::golden {
namespace {

using nlohmann::json;

class ExpertsCliTest : public JobCliTest {
 protected:
  static std::string mixture() {
    const std::filesystem::path file = folder_ / "mixture.gguf";
    if (!std::filesystem::exists(file)) write_gguf(load_random_model("mixtral"), "f32", file);
    return file.string();
  }
  static std::string run(const std::string& more) {
    return fmt::format("run -m {} --prompt-ids 3,4,5,6,7 -n 3 --ignore-eos --threads 1 --json {}",
                       mixture(), more);
  }
};

TEST_F(ExpertsCliTest, JsonHasTheSameLoadHoweverRanksDivideTheExperts) {
  const Outcome alone = braid(run(""));
  ASSERT_EQ(alone.status, 0) << alone.err;
  const json loads = json::parse(alone.out).at("experts");
  ASSERT_FALSE(loads.empty());
  for (const json& load : loads) {
    const auto rows = load.at("rows").get<std::vector<int64_t>>();
    const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    EXPECT_EQ(all, 2 * (5 + 2)) << "two experts a token, and the last token is not read";
    EXPECT_DOUBLE_EQ(load.at("max_over_mean").get<double>(),
                     static_cast<double>(std::ranges::max(rows)) *
                         static_cast<double>(rows.size()) / static_cast<double>(all));
    EXPECT_EQ(load.at("idle").get<int64_t>(), std::ranges::count(rows, 0));
  }
  EXPECT_EQ(loads[0].at("layer"), "layers.0");
  for (const char* sharing : {"--tp 2", "--ep 2", "--ep 2 --schedule sbo --expert-memory 0",
                              "--ep 3 --schedule dbo", "--dp 2 --ep 2"}) {
    const Outcome o = braid(run(sharing));
    ASSERT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(json::parse(o.out).at("experts"), loads) << sharing;
  }
  for (const Outcome& o : job(2, {run("--ep 2 --schedule sbo")})) {
    EXPECT_EQ(o.status, 0) << o.err;
    if (!o.out.empty()) {
      EXPECT_EQ(json::parse(o.out).at("experts"), loads);
    }
  }
  EXPECT_FALSE(
      json::parse(braid("run -m " + gguf() + " -p a -n 1 --json").out).contains("experts"));
}

TEST_F(ExpertsCliTest, ATraceHasTheLoadOfEachStep) {
  for (const char* sharing : {"", "--ep 2 --schedule sbo"}) {
    const Outcome o = braid(run(fmt::format("--trace {} {}", path("trace.json"), sharing)));
    ASSERT_EQ(o.status, 0) << o.err;
    int64_t rows = 0;
    const json trace = json::parse(read(path("trace.json")));
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || !event.at("args").contains("experts")) continue;
      for (const json& n : event.at("args").at("experts").at("rows")) rows += n.get<int64_t>();
    }
    const auto layers = std::ssize(json::parse(o.out).at("experts"));
    EXPECT_EQ(rows, layers * 2 * (5 + 2)) << sharing;
  }
}

TEST_F(ExpertsCliTest, AWrongBudgetIsRefused) {
  expect_refused(run("--expert-memory -1"), 2, "--expert-memory is -1, wanted 0 to");
  expect_refused("plan --config " BRAID_SOURCE_DIR
                 "/configs/deepseek-v2-lite.json --expert-memory -1",
                 2, "--expert-memory is -1, wanted 0 to");
}

}  // namespace
}  // namespace braid::golden
