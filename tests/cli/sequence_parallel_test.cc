// A model over ranks that divide the tokens of a prompt.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class SequenceParallelCliTest : public CliTest {
 protected:
  static std::string text() {
    std::string text;
    for (int i = 0; i < 120; ++i) text += fmt::format("{} and {}, ", i, i * i);
    return text;
  }
};

TEST_F(SequenceParallelCliTest, PerplexityAndTextAreThoseOfOneRank) {
  const std::filesystem::path file = path("long.txt");
  std::ofstream(file) << text();
  const std::string score = "perplexity -m " + hf() + " --ctx 48 --json -f " + file.string();
  const Outcome one = braid(score);
  ASSERT_EQ(one.status, 0) << one.err;
  const double want = json::parse(one.out).at("perplexity");
  const std::string answer = "run -m " + gguf() + " -p '3 and 9, 4' -n 12 --json --ignore-eos ";
  const json text_of_one = json::parse(braid(answer).out).at("text");
  for (const char* sp :
       {"--sp ring --ranks 3", "--sp ulysses --ranks 2", "--sp torus --machines 2x1",
        "--sp usp --machines 2x2 --ulysses-degree 2", "--sp tas --machines 2x2 --ring-degree 2",
        "--sp torus --ranks 4 --torus-degree 2 --ulysses-degree 2 --schedule overlap",
        "--sp torus --ranks 2 --torus-degree 2 --schedule sequence_parallel", "--sp ring --ranks 1",
        "--sp ring --machines 2x2x1", "--sp ring --ranks 2 --link-gbps 1"}) {
    SCOPED_TRACE(sp);
    const Outcome o = braid(fmt::format("{} --threads 1 {}", score, sp));
    ASSERT_EQ(o.status, 0) << o.err;
    EXPECT_NEAR(json::parse(o.out).at("perplexity").get<double>(), want, 1e-4 * want);
    const Outcome run = braid(fmt::format("{} --threads 1 {}", answer, sp));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(json::parse(run.out).at("text"), text_of_one);
  }
}

// Tensor parallelism over emulated machines.
TEST_F(SequenceParallelCliTest, RanksOnSeveralMachinesGiveTheTextOfOne) {
  const std::string answer = "run -m " + gguf() + " -p '3 and 9, 4' -n 12 --json --ignore-eos ";
  const json want = json::parse(braid(answer).out).at("text");
  for (const char* machines : {"--machines 2x1", "--tp 2 --machines 2x1", "--machines 2x2",
                               "--machines 2x1 --link-gbps 1 --schedule overlap"}) {
    SCOPED_TRACE(machines);
    const Outcome run = braid(fmt::format("{} --threads 1 {}", answer, machines));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(json::parse(run.out).at("text"), want);
  }
}

TEST_F(SequenceParallelCliTest, ExplainsAndTracesWhatRan) {
  const std::string trace = path("sequence_trace.json");
  const Outcome o =
      braid("run -m " + gguf() + " -p '3 and 9, 4 and 16, 5' -n 3 --threads 1 --sp " +
            "torus --machines 2x1 --schedule sequence_parallel --explain --ignore-eos " +
            "--trace " + trace);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("sequences over 2 ranks: torus attention, torus 2"));
  EXPECT_THAT(o.err, HasSubstr("keys: 256 slots on each rank, 512 together"));
  EXPECT_THAT(o.err, HasSubstr("1 tokens of 1 sequences to the keys on 2 ranks"));
  EXPECT_THAT(o.err, HasSubstr("tokens over 2 ranks"));
  const Outcome racks = braid("run -m " + gguf() + " -p '3 and 9, 4 and 16, 5' -n 1 --threads 1 " +
                              "--sp ring --machines 2x2x1 --explain");
  ASSERT_EQ(racks.status, 0) << racks.err;
  EXPECT_THAT(racks.err, HasSubstr("sequences over 4 ranks in 2 racks: ring attention"));
  for (const char* stage : {"attn.pull_q1: comm pull, compute segment_attention",
                            "attn.pull_kv1: comm pull, compute segment_attention",
                            "attn.attend: compute segment_attention", "attn.push_o: comm push"}) {
    EXPECT_THAT(o.err, HasSubstr(stage));
  }
  const std::string written = read(trace);
  EXPECT_THAT(written, HasSubstr("layers.0.attn.pull_kv1 pull"));
  EXPECT_THAT(written, HasSubstr("\"attributes\""));
  for (const char* kind : {"segment_attention", "pull", "push", "sync", "kv_read"}) {
    EXPECT_THAT(written, HasSubstr(kind));
  }
}

TEST_F(SequenceParallelCliTest, BenchTakesThem) {
  const std::string bench =
      "bench -m " + gguf() + " -p 24 -n 2 -r 1 --threads 1 --sp ring --ranks 2";
  const Outcome o = braid(bench);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("| 2, ring |"));
  EXPECT_THAT(o.out, HasSubstr("| pp24 "));
  EXPECT_EQ(json::parse(braid(bench + " --json").out).at("sp"), 2);
  const Outcome own = braid(bench + " --own 2");
  ASSERT_EQ(own.status, 0) << own.err;
  EXPECT_THAT(own.out, HasSubstr("| pp24 "));
  EXPECT_THAT(own.out, HasSubstr("| tg2, 4 own "));
  expect_refused("bench -m " + gguf() + " -p 0 -n 1 --own 1", 2, "--own: ranks have sequences");
}

TEST_F(SequenceParallelCliTest, ThinnedKeysAreSaidAndWrongSharesRefused) {
  const std::filesystem::path file = path("long.txt");
  std::ofstream(file) << text();
  const std::string thin = path("three_layers");  // the middle one thins
  write_hf_folder(load_random_model("llama3_gqa"), thin);
  const std::string score =
      "perplexity -m " + thin + " --ctx 48 --threads 1 --sp ring --ranks 2 -f " + file.string();
  // Dense steps behind keys may move queries, and add states in another order.
  const auto perplexity_of = [&](const std::string& options) {
    return json::parse(braid(score + options + " --json").out).at("perplexity").get<double>();
  };
  const double dense = perplexity_of("");
  EXPECT_NEAR(perplexity_of(" --keep 1"), dense, 1e-5 * dense);
  const Outcome probed = braid(score + " --keep 0.5 --importance probe --explain");
  ASSERT_EQ(probed.status, 0) << probed.err;
  EXPECT_THAT(probed.err, HasSubstr("approximate: keep 0.5 in groups of 2 ranks, by probe"));
  EXPECT_THAT(probed.err, HasSubstr("the scores peek at the text"));
  const Outcome previous = braid(score + " --keep 0.5 --importance previous --explain");
  ASSERT_EQ(previous.status, 0) << previous.err;
  EXPECT_THAT(previous.err, HasSubstr("in groups of 2 ranks, by previous"));
  EXPECT_THAT(previous.err, HasSubstr("the scores peek at the text"));
  // Several shares are for a machine, a rack, all.
  const Outcome racks =
      braid("perplexity -m " + thin + " --ctx 48 --threads 1 --sp ring --machines 2x2x1 -f " +
            file.string() + " --keep 0.5,0.25 --explain");
  ASSERT_EQ(racks.status, 0) << racks.err;
  EXPECT_THAT(racks.err, HasSubstr("approximate: keep 0.5, 0.25 in groups of 2, 4 ranks, by own"));
  // The first attention takes another road to the same sums.
  const auto scored = [&](const std::string& more) {
    return json::parse(braid(score + " --json" + more).out).at("perplexity").get<double>();
  };
  const double all = scored("");
  EXPECT_NEAR(scored(" --keep 1 --importance previous"), all, 1e-3 * all);
  expect_refused(score + " --keep 0.5 --drop-queries", 2,
                 "--drop-queries: every token is scored, and dropped ones have seen no far keys");
  EXPECT_THAT(braid(score + " --keep 0.5").err, Not(HasSubstr("peek")));

  const std::string windows = path("windows");
  write_hf_folder(load_random_model("mistral_window"), windows);
  expect_refused("run -m " + windows + " -p x -n 1 --sp ring --ranks 2 --keep 0.5", 1,
                 "--keep: each layer has a window, and no far keys");
  const std::string run = "run -m " + hf() + " -p x -n 1 --threads 1 ", ring = run + "--sp ring ";
  expect_refused("run -m " + windows + " -p x -n 1 --keep 0.5", 1,
                 "--keep: each layer has a window, and no far keys");
  expect_refused(run + "--keep 0.5 --levels 1", 2, "--levels 1: groups of 1 ranks in groups of 1");
  expect_refused(run + "--keep 0.5,0.2", 2, "2 shares, wanted 1 to 1");
  expect_refused(run + "--keep 1.5", 2, "--keep is 1.5");
  expect_refused(run + "--tp 2 --keep nan", 2, "--keep is nan");
  expect_refused(run + "--levels 2", 2, "--levels goes with --keep");
  expect_refused(run + "--dp 2 --keep 0.5", 1, "--keep with --dp 2");
  expect_refused(ring + "--ranks 2 --importance probe", 2, "--importance goes with --keep");
  expect_refused(ring + "--ranks 2 --levels 2", 2, "--levels goes with --keep");
  expect_refused(ring + "--ranks 2 --drop-queries", 2, "--drop-queries goes with --keep");
  expect_refused(ring + "--ranks 2 --keep 0.5 --importance best", 2,
                 "--importance is 'best', wanted own, probe or previous");
  const std::string dropped = "run -m " + thin + " -n 2 --threads 1 --sp ring --ranks 2 -p \"" +
                              text().substr(0, 200) + "\" --keep 0.5 --drop-queries --explain";
  const Outcome drops = braid(dropped);
  EXPECT_EQ(drops.status, 0) << drops.err;
  EXPECT_THAT(drops.err, HasSubstr("by own, queries dropped"));
  expect_refused(ring + "--ranks 2 --keep 0", 2, "--keep is 0, wanted above 0 and at most 1");
  expect_refused(ring + "--ranks 2 --keep 1.5", 2, "--keep is 1.5");
  expect_refused(ring + "--ranks 2 --keep nan", 2, "--keep");
  expect_refused(ring + "--ranks 4 --levels 2,4 --keep 0.2,0.3", 2, "rises from 0.2 to 0.3");
  expect_refused(ring + "--ranks 2 --keep 0.5,0.2", 2,
                 "2 shares, wanted 1 to 1: one for each level of --levels");
  expect_refused(ring + "--ranks 2 --keep 0.5,", 2, "--keep '0.5,': '' is not a number");
  expect_refused(ring + "--ranks 2 --keep ,0.5", 2, "--keep ',0.5': '' is not a number");
  expect_refused(ring + "--ranks 2 --keep half", 2, "'half' is not a number");
  expect_refused(ring + "--ranks 4 --keep 0.5 --levels 2,4x", 2, "'4x' is not a number");
  expect_refused(ring + "--ranks 4 --levels 3,4 --keep 0.5", 2, "--levels 3,4");
  // `plan prompt` refuses by the same lines.
  for (const char* wrong : {"--keep 0", "--keep nan", "--keep half", "--keep 0.5,",
                            "--keep 0.5,0.2", "--keep 0.5 --levels 3,4", "--keep 0.5 --levels 2,4x",
                            "--levels 4", "--keep 0.5 --importance best", "--drop-queries"}) {
    const std::string said = braid(ring + "--ranks 4 " + wrong).err;
    expect_refused("plan prompt -m " + hf() + " --machines 1x4 --tokens 64 " + wrong, 2, said);
  }
  expect_refused("plan prompt -m " + windows + " --machines 1x2 --tokens 64 --keep 0.5", 1,
                 "--keep: each layer has a window, and no far keys");
  const std::string shapes = std::string("plan prompt --machines 1x2 --keep 0.5 --config ") +
                             BRAID_TEST_DATA "/../configs/";
  expect_refused(shapes + "qwen2.5-7b-1m.json --tokens 262145", 1,
                 "--keep: beyond 262144 tokens the model has dual chunk attention");
  expect_refused(shapes + "deepseek-v2-lite.json --tokens 64", 1,
                 "--keep: latent attention reads a cache of all heads' latents");
  for (const char* mode : {"ulysses", "usp", "tas", "torus"}) {
    expect_refused(
        fmt::format("{}--sp {} --machines 2x2 --keep 0.5", run, mode), 2,
        fmt::format("--keep with --sp {}: wanted --sp ring or auto, or without --sp", mode));
  }
  // Refused before the machine is measured.
  setenv("XDG_CACHE_HOME", path("no_profile").c_str(), 1);
  expect_refused(run + "--sp auto --ranks 2 --keep 0.3 --ulysses-degree 2", 2,
                 "--keep with torus degree 1, ulysses degree 2: far keys go round a ring");
  expect_refused(run + "--sp auto --ranks 4 --keep 0.3 --levels 3", 2,
                 "the last group has 3 of 4 ranks, wanted all, or a multiple");
  expect_refused(ring + "--ranks 4 --schedule auto --keep 0.5 --levels 3,4", 2, "--levels 3,4");
  unsetenv("XDG_CACHE_HOME");
}

// What no rank's room can mend is the model's.
TEST_F(SequenceParallelCliTest, LongPromptsNameThePositionsOrTheRoom) {
  const std::string run = "run -m " + hf() + " -n 1 --threads 1 --sp ring --ranks 2 ";
  const std::filesystem::path file = path("long.txt");
  std::ofstream(file) << text();
  const Outcome beyond = braid(run + "-f " + file.string());
  EXPECT_EQ(beyond.status, 2);
  EXPECT_THAT(beyond.err, HasSubstr("at most 511 fit with room for an answer; the model has 512"));
  EXPECT_THAT(beyond.err, Not(HasSubstr("keys")));
  expect_refused(run + "--ctx 32 -p \"" + text().substr(0, 200) + "\"", 2,
                 "the context holds 32: at most 31 fit with room for an answer; its keys want");
  // 1,024 bytes a token: 200 in all, and a page of 64 on each rank.
  std::string ids = "1";
  for (int i = 1; i < 200; ++i) ids += fmt::format(",{}", i);
  expect_refused(run + "--ctx 128 --prompt-ids " + ids, 2,
                 "the prompt has 200 tokens, the context holds 128: at most 127 fit with room for "
                 "an answer; its keys want 0.2 MB, and each of 2 ranks has room for 0.1 MB");
  expect_refused(run + "--ctx 400000 -p x", 2, "--ctx is 400000, wanted 2 to 512, the model's");
  expect_refused("perplexity -m " + hf() + " --ctx 400000 -f " + file.string(), 2,
                 "--ctx is 400000, wanted 2 to 512, the model's positions");
}

TEST_F(SequenceParallelCliTest, WhatDoesNotGoTogetherGetsOneLine) {
  const std::string run = "run -m " + gguf() + " -p x -n 1 --threads 1 ";
  expect_refused(run + "--ranks 2", 2, "--ranks goes with --sp");
  expect_refused(run + "--tp 2 --machines 3x1", 2, "--tp is 2, --machines 3x1 are 3");
  expect_refused(run + "--machines 2", 2, "MACHINESxDEVICES");
  expect_refused(run + "--machines 2x1x1x1", 2, "machines '2x1x1x1': wanted MACHINESxDEVICES");
  expect_refused(run + "--sp ring", 2, "--ranks N says how many");
  expect_refused(run + "--sp ring --ranks 2 --tp 2", 2, "--sp and --tp");
  expect_refused(run + "--sp spiral --ranks 2", 2, "'spiral': there are ring, ulysses");
  expect_refused(run + "--sp ring --ranks 0", 2, "over 0 ranks");
  expect_refused(run + "--sp ring --ranks 2 --machines 2x2", 2, "--machines 2x2 are 4");
  expect_refused(run + "--sp ring --machines 2", 2, "2");
  expect_refused(run + "--sp ring --ranks 2 --ulysses-degree 2", 2, "make up 4 ranks");
  expect_refused(run + "--sp ulysses --ranks 64", 2, "only 4 heads");
  expect_refused(run + "--sp torus --ranks 4 --torus-degree -2", 2, "--torus-degree is -2");
}

}  // namespace
}  // namespace braid::golden
