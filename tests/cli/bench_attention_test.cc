// braid bench attention from the command line.
#include <map>
#include <sstream>

#include "cli/program.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class BenchAttentionCliTest : public CliTest {};

// Cells of the table's rows, without those of modes that were refused.
std::map<std::string, std::vector<std::string>> rows_of(const std::string& table) {
  std::map<std::string, std::vector<std::string>> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    std::vector<std::string> cells;
    for (size_t at = 2, end; (end = line.find(" |", at)) != std::string::npos; at = end + 3) {
      cells.push_back(line.substr(at, end - at));
    }
    if (cells.size() == 8 && cells[0] != "mode") rows[cells[0]] = cells;
  }
  return rows;
}

// Counted and analytic bytes are the same number.
void expect_equal_bytes(const std::map<std::string, std::vector<std::string>>& rows) {
  for (const auto& [mode, cells] : rows) {
    for (size_t column : {5u, 6u}) {
      const size_t slash = cells[column].find(" / ");
      ASSERT_NE(slash, std::string::npos) << cells[column];
      EXPECT_EQ(cells[column].substr(0, slash), cells[column].substr(slash + 3)) << mode;
    }
  }
}

TEST_F(BenchAttentionCliTest, MeasuresEveryModeOnTheCpu) {
  const Outcome o = braid(
      "bench attention --machines 2x2 --tokens 90 --text 5 --heads 8 --kv-heads 2 --head-dim 16 "
      "--causal --batch 2 -r 1 --plot " +
      path("plot.svg"));
  ASSERT_EQ(o.status, 0) << o.err;
  const auto rows = rows_of(o.out);
  EXPECT_EQ(rows.size(), 5u) << o.out;
  expect_equal_bytes(rows);
  const std::string plot = read(path("plot.svg"));
  for (const char* kind : {"segment_attention", "pull", "push", "sync", "rank 3 side", "0 ms"}) {
    EXPECT_THAT(plot, HasSubstr(kind));
  }
}

TEST_F(BenchAttentionCliTest, PredictsAClusterFromAProfile) {
  const std::string command =
      "bench attention --shape flux-3072 --machines 4x8 --profile a100 --sp all";
  const Outcome o = braid(command);
  ASSERT_EQ(o.status, 0) << o.err;
  const auto rows = rows_of(o.out);
  EXPECT_EQ(rows.size(), 4u) << o.out;
  expect_equal_bytes(rows);
  EXPECT_THAT(o.out, HasSubstr("32 head groups"));  // why there is no ulysses
  EXPECT_THAT(o.out, HasSubstr("| torus | 4 x 2 x 4 |"));
  EXPECT_EQ(braid(command + " --plot " + path("cluster.svg")).out, o.out)
      << "predictions are deterministic";
  const std::string plot = read(path("cluster.svg"));
  for (const char* text : {"sync: ranks meet", "ranks 0 to 7 compute"}) {
    EXPECT_THAT(plot, HasSubstr(text));
  }
  EXPECT_THAT(plot, testing::Not(HasSubstr(">rank ")));
}

// Strategies divide the sequences and run their stages in turns; what moves stays the same.
TEST_F(BenchAttentionCliTest, MicroBatchesOfSequences) {
  for (const char* strategy : {"sequence_parallel", "overlap", "nanoflow", "tokenweave"}) {
    for (const char* profile : {"", " --profile a100"}) {
      const Outcome o = braid(fmt::format(
          "bench attention --machines 2x2 --tokens 96 --text 5 --batch 3 --micro-batches 2 -r 1 "
          "--launches --sp torus,ring --schedule {}{}",
          strategy, profile));
      ASSERT_EQ(o.status, 0) << o.err;
      expect_equal_bytes(rows_of(o.out));
      size_t finals = 0;
      for (size_t at = 0; (at = o.out.find("finalize=true", at)) != o.out.npos; ++at) ++finals;
      EXPECT_EQ(finals, 2u * (2 + 1)) << "each micro-batch ends torus' two parts and the ring";
    }
  }
}

// One micro-batch's transfers run under the other's attention, whichever strategy takes turns.
TEST_F(BenchAttentionCliTest, MicroBatchesHideEachOthersTransfers) {
  const auto seconds = [&](const std::string& strategy, int micro_batches) {
    const Outcome o = braid(fmt::format(
        "bench attention --machines 2x1 --link-gbps 12.5 --tokens 18432 --heads 24 --head-dim 128 "
        "--batch 2 --micro-batches {} --profile h200 --sp ring,ulysses --schedule {}",
        micro_batches, strategy));
    EXPECT_EQ(o.status, 0) << o.err;
    std::map<std::string, double> times;
    for (const auto& [mode, cells] : rows_of(o.out)) times[mode] = std::stod(cells[2]);
    return times;
  };
  auto in_order = seconds("sequential", 1);
  for (const char* strategy : {"sequence_parallel", "overlap", "nanoflow", "tokenweave"}) {
    auto times = seconds(strategy, 2);
    for (const char* mode : {"ring", "ulysses"}) {
      EXPECT_LT(times[mode], 0.85 * in_order[mode]) << strategy << ", " << mode;
    }
  }
}

// By length, links and heads: not always torus, and not always the rule's degrees.
TEST_F(BenchAttentionCliTest, AutoTakesTheFastestModeAndDegrees) {
  const auto chosen = [&](const std::string& options) {
    const Outcome o = braid("bench attention --profile a100 --sp auto " + options);
    EXPECT_EQ(o.status, 0) << o.err;
    const size_t at = o.out.find("auto: ");
    return at < o.out.size() ? o.out.substr(at + 6) : "";
  };
  const std::string nine = "--heads 9 --tokens 36864 --machines 2x8";
  for (const auto& [options, want] : std::vector<std::pair<std::string, std::string>>{
           {"--heads 24 --tokens 512 --machines 2x1", "ulysses, torus 1 x ulysses 2 x ring 1"},
           {"--heads 24 --tokens 4096 --machines 2x1", "torus, torus 2 x ulysses 1 x ring 1"},
           {"--heads 24 --tokens 36864 --machines 2x1", "ring, torus 1 x ulysses 1 x ring 2"},
           {"--shape flux-3072 --machines 4x8", "torus, torus 8 x ulysses 1 x ring 4"},
           // The rule has one group for nine heads, a ring, which takes longer.
           {nine, "torus, torus 2 x ulysses 1 x ring 8"},
           {nine + " --torus-degree 1", "usp, torus 1 x ulysses 1 x ring 16"}}) {
    EXPECT_EQ(chosen(options), want + "\n") << options;
  }
}

TEST_F(BenchAttentionCliTest, WrongUseGetsOneLine) {
  expect_refused("bench attention --sp spiral", 2, "there are ring, ulysses, usp, tas, torus");
  expect_refused("bench attention --shape flux", 2, "flux-3072");
  expect_refused("bench attention --machines 2", 2, "MACHINESxDEVICES");
  expect_refused("bench attention --sp torus --machines 2x2 --torus-degree 3", 2,
                 "the degrees make up 3 ranks, there are 4");
  expect_refused("bench attention --heads 0", 2, "--heads is 0");
  expect_refused("bench attention --profile nope", 1, "no profile 'nope'");
  expect_refused("bench attention --plot plot.png", 2, "ends in .svg");
  expect_refused("bench attention --schedule nope", 2, "sequence_parallel");
  expect_refused("bench attention --schedule auto", 2, "by name");
  expect_refused("bench attention --batch 2 --micro-batches 3", 2, "wanted 1 to 2");
  expect_refused("bench attention --shape flux-3072 --tokens 99", 2,
                 "--tokens goes with --shape custom");
  expect_refused("bench --sp ring attention", 2, "--sp before 'attention'");
  expect_refused("bench attention --profile a100 --machines 64x64", 2, "4096 ranks, at most 256");
  expect_refused("bench attention --heads 9 --kv-heads 4", 2, "9");
  expect_refused("bench attention --sp auto --profile a100 --ring-degree 5", 2, "5");
}

}  // namespace
}  // namespace braid::golden
