// Planning, schedules and traces from the command line.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ScheduleCliTest : public CliTest {
 protected:
  static std::string llama() { return BRAID_TEST_DATA "/../configs/llama-3-8b.json"; }
};

TEST_F(ScheduleCliTest, WrongUseGetsOneLineAndItsStatus) {
  expect_refused("plan", 2, "one of -m and --config");
  expect_refused("plan --config /no/such.json", 1, "/no/such.json: no such file");
  const std::string plan = "plan --config " + llama();
  expect_refused(plan + " --tp 64", 2, "32 query heads");
  expect_refused(plan + " --tp 2 --machines 3x1", 2, "3 devices");
  expect_refused(plan + " --tp 2 --dp 2 --machines 3x1", 2, "3 devices, --tp is 2 and --dp 2");
  expect_refused(plan + " --dp 0", 2, "--dp is 0, wanted 1 to 1024");
  expect_refused(plan + " --tp 4 --dp 257", 2, "--dp is 257, wanted 1 to 256");
  expect_refused(plan + " --dp 2 --ep 2", 2, "no experts");
  expect_refused(plan + " --profile nope", 1, "no profile 'nope'");
  expect_refused(plan + " --tokens 0", 2, "nothing to plan");
  expect_refused(plan + " --schedule nope", 2, "there are sequential, overlap");
  expect_refused("run -m " + hf() + " -p x --schedule ./nope.so", 2, "nope.so");
  expect_refused("run -m " + hf() + " -p x --link-us 3", 2, "--link-us needs --link-gbps");
  expect_refused("run -m " + hf() + " -p x --link-gbps -1", 2, "wanted 0.001 to 1e6");
  expect_refused("run -m " + hf() + " -p x --tp 2 --link-gbps 1e-9", 2, "wanted 0.001 to 1e6");
  expect_refused("plan --config " + llama() + " --tp 2000000000", 2, "--tp is 2000000000");
  expect_refused("plan --config " + llama() + " --decodes 100000000", 2, "wanted 0 to 4096");
  expect_refused("plan --config " + llama() + " --tokens 9223372036854775807", 2,
                 "wanted 0 to 16777216");
  expect_refused("plan --config " + llama() + " --depth 1000000000000", 2, "wanted 0 to 16777216");
}

TEST_F(ScheduleCliTest, StrategiesThatAreWrongAreRefusedBeforeAnythingRuns) {
  const auto refused = [](const char* name, int status, const std::string& text) {
    expect_refused(fmt::format("run -m {} -p 'a b c' -n 2 --tp 2 --threads 1 --schedule {}/{}.so",
                               hf(), BRAID_STRATEGIES, name),
                   status, text);
  };
  refused("throws_in_split", 2, "'throws_in_split': the strategy threw: no idea how");
  refused("drops_an_op", 2,
          "at 'layers.0.mlp', micro-batch 0: every op runs once, and this one was never executed");
  refused("other_abi", 1, "was built for version 999");
  expect_refused(
      fmt::format("run -m {} -p x --tp 0 --schedule {}/throws_in_split.so", hf(), BRAID_STRATEGIES),
      2, "over 0 ranks, wanted at least 1");
}

// Racks without an uplink of their own change no price.
TEST_F(ScheduleCliTest, PlanSaysWhatGoesBetweenRacks) {
  const auto report = [](const std::string& machines) {
    const Outcome o = braid(
        fmt::format("plan --config {} --profile h200 --sp ring --tokens 64 --machines {} --json",
                    llama(), machines));
    EXPECT_EQ(o.status, 0) << o.err;
    return json::parse(o.out);
  };
  json racks = report("2x2x1");
  EXPECT_GT(racks.at("rack_bytes"), 0);
  EXPECT_LT(racks.at("rack_bytes"), racks.at("wire_bytes"));
  racks.erase("rack_bytes");
  EXPECT_EQ(racks, report("4x1"));
  EXPECT_EQ(report("1x4x1"), report("4x1"));
  const Outcome text =
      braid("plan --config " + llama() + " --profile h200 --sp ring --tokens 64 --machines 2x2x1");
  EXPECT_THAT(text.out, HasSubstr("MB on the wire go between racks"));
  const Outcome prompt =
      braid("plan prompt --config " + llama() + " --machines 2x1x1 --tokens 4096 --explain");
  EXPECT_THAT(prompt.out, HasSubstr("| 2 (2x1x1) | tokens divided, ring"));
  // Columns line up: each row's second name begins where the head's does.
  std::istringstream lines(prompt.out);
  std::string head;
  std::getline(lines, head);
  const size_t how = head.find("| how");
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line[how], '|') << line;
}

// Groups have a step each: without experts their ranks meet at the head alone, whose rows are
// divided over all ranks; with --ep rows of all groups cross.
TEST_F(ScheduleCliTest, PlanHasAStepForEachGroupOfRanks) {
  const auto planned = [](const std::string& config, const std::string& options) {
    const Outcome o = braid(fmt::format("plan --config {}/../configs/{}.json --tokens 64 {} --json",
                                        BRAID_TEST_DATA, config, options));
    EXPECT_EQ(o.status, 0) << o.err;
    return json::parse(o.out);
  };
  const json one = planned("llama-3-8b", "--tp 1"), two = planned("llama-3-8b", "--tp 1 --dp 2");
  // A wanted row of each group goes to the other rank in f32 or bf16, and logits of half the words
  // come back: far less than a block of the model.
  EXPECT_GT(two.at("wire_bytes"), 0);
  EXPECT_LT(two.at("wire_bytes"), 4 << 20);
  const double step = one.at("simulated_ms");
  EXPECT_NEAR(two.at("simulated_ms"), step, 0.1 * step);
  const json experts = planned("deepseek-v2-lite", "--dp 4 --ep 4 --decodes 8");
  EXPECT_THAT(std::string(experts.at("experts")), HasSubstr("64 experts"));
  EXPECT_GT(experts.at("wire_bytes"), two.at("wire_bytes"));
  const json more = planned("deepseek-v2-lite", "--dp 4 --ep 4 --decodes 72");
  EXPECT_GT(more.at("wire_bytes"), experts.at("wire_bytes"));
}

// Less than 3% is no reason to leave the order of the Program.
TEST_F(ScheduleCliTest, PlanPricesEveryStrategyAndAutoTakesTheCheapest) {
  int divided = 0;
  for (const int tokens : {2048, 8192}) {
    double best = 1e9, sequential = 0, chosen = 0;
    for (const std::string_view name :
         {"sequential", "overlap", "nanoflow", "gemm_collective", "tokenweave", "auto"}) {
      const Outcome o = braid(fmt::format(
          "plan --config {} --tp 4 --tokens {} --schedule {} --json", llama(), tokens, name));
      ASSERT_EQ(o.status, 0) << o.err;
      const json report = json::parse(o.out);
      const double ms = report.at("simulated_ms");
      EXPECT_GT(ms, 0);
      const double in_order = report.at("sequential_ms");
      const double without = report.at("sequential_without_communication_ms");
      EXPECT_LT(without, in_order);
      EXPECT_NEAR(report.at("communication_gain"), (in_order - ms) / (in_order - without), 1e-9);
      if (name == "sequential") sequential = ms;
      if (name == "auto") {
        chosen = ms;
      } else {
        best = std::min(best, ms);
      }
    }
    const bool pays = best < 0.97 * sequential;
    EXPECT_DOUBLE_EQ(chosen, pays ? best : sequential) << tokens << " tokens";
    divided += pays;
  }
  EXPECT_EQ(divided, 1) << "a long prompt is divided, a short one is not";
}

// Steps in a forced form have its launches, and the simulator has the form's price.
TEST_F(ScheduleCliTest, PlansDecodeStepsInEveryForm) {
  constexpr int kLayers = 32;
  const auto count = [](const std::string& text, std::string_view word) {
    int n = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
    return n;
  };
  const std::string plan =
      "plan --config " + llama() + " --profile h100 --tokens 0 --depth 1023 --decodes ";
  for (const int tp : {1, 2}) {
    for (const std::string form :
         {"auto", "apart", "relay", "fused:cluster=4,split=token,scope=qkv,exchange=chip",
          "fused:cluster=8,split=token,scope=projected,exchange=memory",
          "fused:cluster=2,parts=3,split=token,scope=projected,exchange=chip"}) {
      SCOPED_TRACE(fmt::format("{} --tp {}", form, tp));
      const Outcome o =
          braid(plan + fmt::format("1 --launches --json --tp {} --decode {}", tp, form));
      ASSERT_EQ(o.status, 0) << o.err;
      const json report = json::parse(o.out);
      const bool relay = form == "auto" || form == "relay";
      EXPECT_EQ(report.at("decode").at(0),
                "decode steps of one token, priced with 1024 keys: " + (relay ? "relay" : form));
      const std::string listing = report.at("listing");
      const int joined = relay ? (tp == 1 ? 6 : 8) * kLayers + 1 : 0;
      EXPECT_EQ(count(listing, fmt::format(", of {} launches as one", joined)), relay ? 1 : 0);
      EXPECT_EQ(count(listing, "relay 132 x "), relay ? 1 : 0);
      const int others = tp == 1 ? 1 : 2;  // the embedding, and the logits of all ranks
      if (relay) {
        EXPECT_EQ(report.at("launches"), 1 + others);
      }
      EXPECT_EQ(count(listing, "fused:cluster="), form.starts_with("fused") ? kLayers : 0);
      if (tp > 1) continue;
      double ms = 0;
      for (const std::string line : report.at("decode")) {
        if (line.find("(chosen)") != std::string::npos) {
          ms = std::stod(line.substr(line.find(": ") + 2));
        }
      }
      EXPECT_NEAR(report.at("simulated_ms"), ms, .01 * ms);
    }
  }
  // A GPU without constants, in words.
  const Outcome other = braid("plan --config " + llama() +
                              " --tokens 0 --decodes 1 --profile a100 --decode auto --explain");
  EXPECT_THAT(other.out, HasSubstr("no constants of 'a100'"));
  expect_refused(plan + "1 --decode fast", 2, "--decode 'fast': wanted auto, apart, relay, fused");
  expect_refused(plan + "1 --decode fused:cluster=17", 2, "cluster is '17', wanted 1 to 16");
  expect_refused(plan + "1 --decode fused:cluster=16,scope=projected", 1,
                 "8 KV heads as clusters of 16 CTAs: the GPU runs 7 at once");
  expect_refused(plan + "1 --decode fused:cluster=8,parts=2", 1,
                 "8 KV heads as 2 clusters of 8 CTAs each: the GPU runs 15 at once");
  expect_refused(plan + "17 --decode fused", 1, "32 tokens a step: 16 at most");
  expect_refused(plan + "2 --decode relay", 1, "2 tokens a step: 1");
  expect_refused("plan --config " + llama() + " --decode relay", 2,
                 "wanted are --tokens 0 and no --ep, and these are --tokens 512, --ep 1");
  std::string cpu = read(BRAID_TEST_DATA "/../profiles/h100.json");
  cpu.replace(cpu.find("\"bf16\""), 6, "\"f32\"");
  std::ofstream(path("cpu.json")) << cpu;
  expect_refused("plan --config " + llama() + " --tokens 0 --decodes 1 --decode relay --profile " +
                     path("cpu.json"),
                 1, "is of a CPU, wanted is a GPU's");
}

TEST_F(ScheduleCliTest, TracesOfRealAndSimulatedStepsHaveOneForm) {
  const std::string real = path("real.json"), simulated = path("simulated.json");
  const Outcome ran = braid("run -m " + hf() + " -p 'a b c d e f g h' -n 3 --ignore-eos --tp 2 " +
                            "--threads 1 --schedule overlap --explain --trace " + real);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("overlap, "));
  ASSERT_EQ(
      braid("plan --config " + llama() + " --tp 2 --schedule overlap --trace " + simulated).status,
      0);
  for (const std::string& file : {real, simulated}) {
    const json trace = json::parse(read(file));
    EXPECT_GT(trace.at("otherData").at("step_seconds").get<double>(), 0) << file;
    int slices[2][3] = {};
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      ++slices[event.at("pid").get<int>()][event.at("tid").get<int>()];
      EXPECT_GE(event.at("dur").get<double>(), 0);
    }
    for (const auto& rank : slices) {
      EXPECT_GT(rank[0], 0) << file << ": compute";
      EXPECT_GT(rank[1], 0) << file << ": comm";
    }
  }
}

}  // namespace
}  // namespace braid::golden
