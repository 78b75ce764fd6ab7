#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "braid/parallel/attention/sequence_mesh.h"

// StreamFusion's figures as rows of a benchmark (arXiv 2601.20273).
namespace braid::app {

// Ranks that divide a step in a given way.
struct StepRow {
  std::string label;
  SpMode mode = SpMode::ring;
  std::string schedule = "sequence_parallel";
};

// Degrees for a row's measurement. rule: sequence_mesh chooses; best: the least simulated time;
// each: all degrees, a row apiece.
enum class Degrees : uint8_t { rule, best, each };

struct Figure {
  std::string_view shows;
  std::vector<StepRow> rows;  // the first is the baseline
  Degrees degrees = Degrees::rule;
  std::string_view paper;  // the paper's numbers, of 4 machines with 8 A100 each
};

// Figures 7, 8, 9, 10 and 12; fails with kInvalidArgument, naming the figures that are known.
Figure paper_figure(int number);

// Attention alone over `batch` sequences with `tokens` each, in `pieces` of equal length.
struct AttentionSize {
  int64_t tokens = 0;
  int64_t head_dim = 128;
  int64_t batch = 1;
  int64_t pieces = 1;
};
// Attention sizes timed in place of steps for figures 9 and 12; empty for other figures. `tokens`:
// lengths in place of the paper's. `batches` (empty: 1) are figure 9's.
std::vector<AttentionSize> attention_sizes(int figure, const std::vector<int64_t>& tokens,
                                           const std::vector<int64_t>& batches);

// A row for each named mode: "ring,torus", or all.
std::vector<StepRow> rows_of_modes(const std::string& modes, const std::string& schedule);

}  // namespace braid::app
