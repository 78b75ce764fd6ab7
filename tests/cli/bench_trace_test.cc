// braid bench trace from the command line.
#include <map>

#include "cli/program.h"

namespace braid::golden {
namespace {

using Json = nlohmann::json;

class BenchTraceCliTest : public CliTest {
 protected:
  static std::string shape() {
    return fmt::format("--config {}/../configs/llama-3.2-1b.json --profile h100", BRAID_TEST_DATA);
  }
  static std::string trace(const std::string& text) {
    std::ofstream(path("trace.jsonl")) << text;
    return path("trace.jsonl");
  }
  static constexpr const char* kTwo =
      "{\"timestamp\": 0, \"input_length\": 60, \"output_length\": 5}\n"
      "{\"timestamp\": 50, \"input_length\": 20, \"output_length\": 3}\n";
};

TEST_F(BenchTraceCliTest, SimulatesEveryPolicyAndSaysTheSameTwice) {
  const std::string command =
      "bench trace --load conversation -n 10 --machines 1x2 --set 1x2 --chunk 512 --json " +
      shape();
  const Outcome o = braid(command);
  ASSERT_EQ(o.status, 0) << o.err;
  const Json results = Json::parse(o.out);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[3]["policy"], "approximate SP, keep 0.5");
  for (const Json& r : results) {
    EXPECT_EQ(r["all"]["requests"], 10);
    EXPECT_EQ(r["short"]["requests"].get<int>() + r["long"]["requests"].get<int>(), 10);
    EXPECT_GT(r["all"]["ttft_s"]["mean"], 0);
    EXPECT_GE(r["all"]["e2e_s"]["p99"], r["all"]["ttft_s"]["p99"]);
  }
  EXPECT_EQ(braid(command).out, o.out);
}

// Without --sp a prompt takes the fastest mode at its length: no mode alone is faster.
TEST_F(BenchTraceCliTest, SimulatedPromptsTakeTheFastestMode) {
  const auto first = [&](const std::string& sp) {
    const Outcome o = braid(
        "bench trace --load bookcorpus -n 4 --rate 0.01 --machines 2x2 --set 2x2 --policy sp "
        "--json " +
        sp + shape());
    EXPECT_EQ(o.status, 0) << o.err;
    const Json r = Json::parse(o.out)[0];
    EXPECT_GT(r["all"]["request_prefill_tokens_per_s"], 0);
    return r["all"]["ttft_s"]["mean"].get<double>();
  };
  const double least = first("");
  for (const char* mode : {"ring", "ulysses", "usp", "tas", "torus"}) {
    EXPECT_LE(least, 1.0001 * first(fmt::format("--sp {} ", mode))) << mode;
  }
}

// The same scheduler with the steps' fitted times, and with a profile's: the same requests and
// tokens as the engine's.
TEST_F(BenchTraceCliTest, ReplaysAFileOnThisMachineAndItsSimulations) {
  const std::string command = fmt::format(
      "bench trace {} -m {} --device cpu --threads 1 --ctx 256 --json", trace(kTwo), gguf());
  for (const std::string more :
       {"", " --profile a100", " --profile a100 --tp 2", " --profile a100 --sp ring --ranks 2"}) {
    const Outcome o = braid(command + more);
    ASSERT_EQ(o.status, 0) << o.err;
    const Json results = Json::parse(o.out);
    ASSERT_EQ(results.size(), more.empty() ? 2u : 3u);
    for (const Json& r : results) {
      EXPECT_EQ(r["all"]["requests"], 2) << r["policy"] << more;
      EXPECT_EQ(r["refused"], 0);
      EXPECT_GE(r["seconds"], 0.05);
      const double tokens = r["decode_tokens_per_s"].get<double>() * r["seconds"].get<double>();
      EXPECT_NEAR(tokens, 8, 1e-6);
      EXPECT_EQ(
          r["steps_of_answers"]["steps"].get<int>() + r["steps_with_prompts"]["steps"].get<int>(),
          r["steps"]);
    }
  }
}

// Each step of each way has a line: together they compute each prompt's tokens once.
TEST_F(BenchTraceCliTest, WritesEachStep) {
  const std::string file = path("steps.jsonl");
  const Outcome o = braid(fmt::format(
      "bench trace {} -m {} --device cpu --threads 1 --ctx 256 --json --profile a100 --sp ring "
      "--ranks 2 --steps {}",
      trace(kTwo), gguf(), file));
  ASSERT_EQ(o.status, 0) << o.err;
  const Json results = Json::parse(o.out);
  std::map<std::string, std::vector<Json>> steps;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const Json step = Json::parse(line);
    steps[step["policy"]].push_back(step);
  }
  ASSERT_EQ(steps.size(), 3u);
  for (const Json& r : results) {
    const std::vector<Json>& of = steps[r["policy"]];
    EXPECT_EQ(of.size(), r["steps"].get<size_t>());
    int64_t prompts = 0;
    double ms = 0, waits = 0;
    for (const Json& step : of) {
      for (const Json& prompt : step["prompts"]) prompts += prompt[0].get<int64_t>();
      ms += step["ms"].get<double>();
      waits += step.value("planning_ms", 0.0);
    }
    EXPECT_EQ(prompts, 80) << r["policy"];
    double sum = 0;
    for (const char* kind : {"steps_of_answers", "steps_with_prompts"}) {
      sum += r[kind]["steps"].get<double>() * r[kind]["mean_ms"].get<double>();
    }
    EXPECT_NEAR(ms, sum, 1e-6 * sum);
    EXPECT_EQ(waits > 0, r["policy"] == "steps by the profile");
    EXPECT_LT(waits, ms);
  }
  expect_refused("bench trace -m " + gguf() + " --steps /none/steps " + trace(kTwo), 1, "--steps");
  expect_refused("bench trace --steps s " + shape(), 2, "--steps is for this machine");
}

TEST_F(BenchTraceCliTest, RefusesInOneLine) {
  const std::string file = trace(std::string(kTwo) + "{\"timestamp\": 50, \"input_le");
  expect_refused("bench trace " + file + " " + shape(), 1, "trace.jsonl:3:");
  expect_refused("bench trace none.jsonl " + shape(), 1, "none.jsonl");
  expect_refused("bench trace --load books " + shape(), 2, "--load names 'books'");
  expect_refused("bench trace --rate -1 " + shape(), 2, "--rate is -1");
  expect_refused("bench trace --scale 0 " + shape(), 2, "--scale is 0");
  expect_refused("bench trace --lengths nan " + shape(), 2, "--lengths is nan");
  expect_refused("bench trace --limit -1 " + shape(), 2, "--limit is -1");
  expect_refused("bench trace --policy fast " + shape(), 2, "--policy names 'fast'");
  expect_refused("bench trace --chunk 12 " + shape(), 2, "--chunk is 12");
  expect_refused("bench trace --set 1x3 " + shape(), 2, "--set is 1x3");
  expect_refused("bench trace --policy sp-levels --keep 1.5 " + shape(), 2, "--keep");
  expect_refused("bench trace --policy sp --sp fast " + shape(), 2, "'fast'");
  expect_refused("bench trace --policy chunked,sp --keep 0.5 " + shape(), 2,
                 "--keep goes with --policy sp-levels");
  expect_refused("bench trace -m " + gguf() + " --keep 1.5 " + file, 2, "--keep is 1.5");
  expect_refused("bench trace --policy chunked --sp ring " + shape(), 2, "--sp goes with --policy");
  expect_refused("bench trace --find-rate " + shape(), 2, "--find-rate wants limits");
  expect_refused("bench trace --profile h100", 2, "--profile");
  expect_refused("bench trace -m x " + shape(), 2, "one of --model and --config");
  expect_refused("bench trace --random-weights " + shape(), 2, "add --tokenizer");
  expect_refused("bench trace -m x --tokenizer x", 2, "--tokenizer goes with --config");
  expect_refused("bench trace -m x --layers 2", 2, "--layers go with --config");
  const std::string here = "bench trace -m " + gguf() + " ";
  for (const char* option :
       {"--policy sp", "--set 1x2", "--machines 1x2", "--chunk 256", "--sp-step 512", "--memory 40",
        "--max-running 4", "--find-rate --ttft 5"}) {
    const std::string name(option, std::string_view(option).find(' '));
    expect_refused(here + option, 2, name + " goes with --profile, which simulates devices");
  }
  for (const char* option : {"--tp 2", "--ranks 2", "--device cpu", "--threads 1"}) {
    const std::string name(option, std::string_view(option).find(' '));
    expect_refused(fmt::format("bench trace {} {}", shape(), option), 2,
                   name + " is for this machine, and --profile simulates others");
  }
  expect_refused("bench trace --policy sp-levels --keep 0.5, " + shape(), 2, "'' is not a number");
}

}  // namespace
}  // namespace braid::golden
