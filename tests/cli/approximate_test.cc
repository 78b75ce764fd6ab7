// The program says `approximate` with results of thinned prompts, and with no others.
#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// Of three layers the middle one thins; of two none does.
class ApproximateCliTest : public CliTest {
 protected:
  static void SetUpTestSuite() {
    CliTest::SetUpTestSuite();
    write_hf_folder(load_random_model("llama3_gqa"), thin());
  }
  static std::string thin() { return path("three_layers"); }
  static std::string prompt(int tokens) {
    std::string ids = "1";
    for (int i = 2; i <= tokens; ++i) ids += fmt::format(",{}", i);
    return " --prompt-ids " + ids;
  }
  static void says_what_is_left_out(const std::string& ranks);
  static void bench_says_it(const std::string& ranks);
  static Outcome run(const std::string& more) {
    return braid("run --threads 1 -n 2 --ignore-eos " + more);
  }
};

// 40 tokens are four parts of 10. In the middle layer each reads half of each earlier part: of 820
// pairs 300 are left out, and 15 of 30 rows from the other rank are read.
constexpr double kPairs = (3.0 * 820 - 300) / (3 * 820), kFarKeys = (3.0 * 30 - 15) / (3 * 30);
constexpr const char* kText =
    "keep 0.5 in groups of 2 ranks, by own: 87.8% of pairs, 83.3% of far keys";

void ApproximateCliTest::says_what_is_left_out(const std::string& ranks) {
  const std::string trace = path("trace.json");
  const Outcome o =
      run("-m " + thin() + prompt(40) + ranks + " --keep 0.5 --json --explain --trace " + trace);
  ASSERT_EQ(o.status, 0) << o.err;
  const json made = json::parse(o.out).at("approximate");
  EXPECT_EQ(made.at("keep"), json({0.5}));
  EXPECT_EQ(made.at("groups"), json({2}));
  EXPECT_EQ(made.at("importance"), "own");
  EXPECT_EQ(made.at("drop_queries"), false);
  EXPECT_NEAR(made.at("pairs"), kPairs, 1e-12);
  EXPECT_NEAR(made.at("far_keys"), kFarKeys, 1e-12);
  EXPECT_THAT(o.err, HasSubstr(fmt::format("braid: approximate: {}\n", kText)));
  EXPECT_THAT(o.err, HasSubstr("prompt of 40 tokens: approximate, 87.8% of its pairs; layers 1: "
                               "63.4% of pairs, 50.0% of far keys; 0, 2: all\n"));
  EXPECT_EQ(json::parse(read(trace)).at("otherData").at("approximate"), kText);
}

// `--sp auto` says the same of its choice, and prices divided products beside rings.
TEST_F(ApproximateCliTest, ChosenRanksSayWhatIsLeftOut) {
  json profile = json::parse(std::ifstream(BRAID_SOURCE_DIR "/profiles/h200.json"));
  std::filesystem::create_directories(path("home") + "/braid/profiles");
  for (int threads : {1, 2}) {
    std::ofstream(path("home") + fmt::format("/braid/profiles/cpu-{}.json", threads)) << profile;
  }
  setenv("XDG_CACHE_HOME", path("home").c_str(), 1);
  says_what_is_left_out(" --sp auto --ranks 2");
  const Outcome o = run("-m " + thin() + prompt(40) + " --sp auto --ranks 2 --keep 0.5 --explain");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_THAT(o.err, HasSubstr("as each prompt's length asks, tokens by ring alone"));
  EXPECT_THAT(o.err, HasSubstr("; weights divided, "));
  EXPECT_THAT(o.err, Not(HasSubstr("refused")));
  EXPECT_THAT(o.err, Not(HasSubstr("tokens divided, ulysses")));
}

// The same of two ranks, of a rank with the parts of two, and of ranks that divide heads.
TEST_F(ApproximateCliTest, RunSaysWhatIsLeftOut) {
  for (const char* ranks : {" --sp ring --ranks 2", " --levels 2",
                            " --sp ring --ranks 1 --levels 2", " --tp 2 --levels 2"}) {
    SCOPED_TRACE(ranks);
    says_what_is_left_out(ranks);
  }
}

TEST_F(ApproximateCliTest, ExactRunsDoNotSayIt) {
  const std::string ring = "-m " + thin() + " --sp ring --explain --json --trace " + path("t.json");
  for (const std::string& exact :
       {ring + prompt(40) + " --ranks 2 --keep 1", ring + prompt(40) + " --ranks 1 --keep 1",
        ring + prompt(7) + " --ranks 1 --keep 0.5", ring + prompt(3) + " --ranks 2 --keep 0.5",
        ring + prompt(1) + " --ranks 2 --keep 0.5",
        "-m " + hf() + prompt(40) + " --sp ring --explain --json --trace " + path("t.json") +
            " --ranks 2 --keep 0.5",
        "-m " + hf() + prompt(40) + " --explain --json --trace " + path("t.json") +
            " --keep 0.5 --levels 2"}) {
    SCOPED_TRACE(exact);
    const Outcome o = run(exact);
    ASSERT_EQ(o.status, 0) << o.err;
    EXPECT_FALSE(json::parse(o.out).contains("approximate"));
    EXPECT_THAT(o.err, Not(HasSubstr("approximate")));
    EXPECT_THAT(read(path("t.json")), Not(HasSubstr("approximate")));
  }
}

// A row that decodes behind a thinned prompt is approximate, too.
TEST_F(ApproximateCliTest, BenchSaysItInEachRow) {
  for (const char* ranks : {" --sp ring --ranks 2", " --levels 2"}) {
    SCOPED_TRACE(ranks);
    bench_says_it(ranks);
  }
}

void ApproximateCliTest::bench_says_it(const std::string& ranks) {
  const std::string bench =
      "bench -m " + thin() + " -p 40 -n 2 -d 0,40 -r 1 --threads 1 --keep 0.5" + ranks;
  const Outcome table = braid(bench);
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("| pp40, approximate 88% |"));
  EXPECT_THAT(table.out, HasSubstr("| tg2 "));
  EXPECT_THAT(table.out, HasSubstr("| tg2 @ d40, approximate 88% |"));
  EXPECT_THAT(table.err, HasSubstr("approximate: keep 0.5 in groups of 2 ranks"));
  const json tests = json::parse(braid(bench + " --json").out).at("tests");
  ASSERT_EQ(tests.size(), 4u);
  EXPECT_NEAR(tests[0].at("approximate").at("pairs"), kPairs, 1e-12);
  EXPECT_FALSE(tests[1].contains("approximate")) << "decoding without a prompt";
  EXPECT_NEAR(tests[3].at("approximate").at("far_keys"), kFarKeys, 1e-12);
  const std::string csv = braid(bench + " -o csv").out;
  EXPECT_THAT(csv, HasSubstr(",approximate,"));
  EXPECT_THAT(csv, HasSubstr("\"{\"\"keep\"\":[0.5],"));
}

// A replayed load says it in each row, with the shares of all its prompts: those of `run`, by the
// pairs of each length. Over ranks with keys of their own a short prompt stays on one, and exact.
TEST_F(ApproximateCliTest, AReplayedLoadSaysIt) {
  json config = json::parse(read(thin() + "/config.json"));
  config["max_position_embeddings"] = 1024;
  const std::string wide = path("three_wide_layers"), load = path("load.jsonl");
  write_hf_folder(load_random_model("llama3_gqa"), wide);
  std::ofstream(wide + "/config.json") << config;
  std::ofstream(load) << R"({"timestamp": 0, "input_length": 600, "output_length": 4})"
                      << "\n"
                      << R"({"timestamp": 20, "input_length": 40, "output_length": 3})"
                      << "\n";
  const auto share = [&](const std::string& ranks, int tokens) {
    std::string ids = "1";
    for (int i = 1; i < tokens; ++i) ids += fmt::format(",{}", i % 60);
    const Outcome o = run("-m " + wide + " --keep 0.5 --json" + ranks + " --prompt-ids " + ids);
    EXPECT_EQ(o.status, 0) << o.err;
    return json::parse(o.out).at("approximate").at("pairs").get<double>();
  };
  const auto replayed = [&](const std::string& more, size_t rows, double pairs) {
    SCOPED_TRACE(more);
    const std::string bench =
        "bench trace -m " + wide + " --device cpu --threads 1 --long 300 " + load + more;
    const Outcome o = braid(bench + " --json");
    ASSERT_EQ(o.status, 0) << o.err;
    const json results = json::parse(o.out);
    ASSERT_EQ(results.size(), rows);
    for (const json& r : results) {
      EXPECT_EQ(r.at("all").at("requests"), 2);
      EXPECT_NEAR(r.at("decode_tokens_per_s").get<double>() * r.at("seconds").get<double>(), 7,
                  1e-6);
      if (pairs == 1) {
        EXPECT_FALSE(r.contains("approximate"));
      } else {
        EXPECT_NEAR(r.at("approximate").at("pairs"), pairs, 1e-9);
      }
    }
    const std::string says =
        fmt::format("this machine, approximate: {:.1f}% of pairs", 100 * pairs);
    const std::string table = braid(bench).out;
    EXPECT_EQ(table.find("approximate") < table.size(), pairs != 1) << table;
    EXPECT_EQ(table.find(says) < table.size(), pairs != 1) << table;
  };
  const double all_long = 600 * 601 / 2, all_short = 40 * 41 / 2;
  const double one =
      (share("", 600) * all_long + share("", 40) * all_short) / (all_long + all_short);
  EXPECT_LT(one, 0.9);
  replayed(" --keep 0.5", 2, one);
  replayed(" --keep 0.5 --profile a100", 3, one);
  const std::string ring = " --sp ring --ranks 2";
  replayed(ring + " --keep 0.5", 2, share(ring, 600));
  replayed(ring + " --keep 0.5 --profile a100", 3, share(ring, 600));
  replayed(ring + " --keep 1", 2, 1);
  replayed(ring, 2, 1);
}

}  // namespace
}  // namespace braid::golden
