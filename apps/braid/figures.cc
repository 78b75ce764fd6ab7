#include "braid/figures.h"

#include <CLI/CLI.hpp>

#include "braid/base/error.h"

namespace braid::app {
namespace {

// The published USP meets at every exchange and hides nothing; a sequential schedule does so.
constexpr const char* kNothingHidden = "sequential";

StepRow bare(SpMode mode) {
  return {fmt::format("{}, nothing hidden", to_string(mode)), mode, kNothingHidden};
}

StepRow hidden(SpMode mode) {
  return {std::string(to_string(mode)), mode};
}

}  // namespace

Figure paper_figure(int number) {
  switch (number) {
    case 7:
      return {.shows = "each method with its best degrees",
              .rows = {bare(SpMode::usp), bare(SpMode::tas), hidden(SpMode::torus),
                       hidden(SpMode::usp)},
              .degrees = Degrees::best,
              .paper =
                  "torus over usp 1.35x on average, up to 1.77x; tas over usp 1.27x, up to "
                  "1.64x on 3 and 4 machines, below 1 on 2"};
    case 8:
      return {.shows = "each method with all degrees",
              .rows = {bare(SpMode::usp), bare(SpMode::tas), hidden(SpMode::torus)},
              .degrees = Degrees::each,
              .paper =
                  "over usp on 3 and 4 machines: tas 1.47x on average, up to 2.54x; torus "
                  "1.61x, up to 3.11x"};
    case 9:
      return {
          .shows = "attention alone by head size, length and batch",
          .rows = {bare(SpMode::usp), hidden(SpMode::torus)},
          .degrees = Degrees::rule,
          .paper =
              "torus over usp 1.12x, 1.28x, 1.32x for heads of 32, 64, 128, and 1.59x, "
              "1.27x, 1.07x, 1.14x for 96k, 128k, 160k, 192k tokens, and 1.27x, 1.27x, 1.13x by "
              "batch. Heads of 32 have no kernel over GPUs here"};
    case 12:
      return {.shows = "the attention kernel over several tensors of queries, keys and values",
              .rows = {},
              .paper =
                  "it costs as much as FlashAttention-2 over one tensor; beside the latter, "
                  "tools/bench_attention_peer.py"};
    case 10:
      return {.shows = "what each part of the method brings",
              .rows = {bare(SpMode::usp), bare(SpMode::tas), bare(SpMode::torus),
                       hidden(SpMode::torus)},
              .degrees = Degrees::rule,
              .paper =
                  "usp, then tas (1.27x on average), torus over NCCL (nothing for pictures), "
                  "torus with one-sided transfers (little for videos)"};
    default:
      fail(ErrorCode::kInvalidArgument, "--figure is {}, wanted is 7, 8, 9, 10 or 12", number);
  }
}

std::vector<AttentionSize> attention_sizes(int figure, const std::vector<int64_t>& tokens,
                                           const std::vector<int64_t>& batches) {
  if (figure != 9 && figure != 12) return {};
  std::vector<int64_t> lengths = tokens;
  if (lengths.empty()) {
    for (int64_t k : figure == 9 ? std::vector<int64_t>{96, 128, 160, 192}
                                 : std::vector<int64_t>{4, 8, 16, 32, 64}) {
      lengths.push_back(k * 1024);
    }
  }
  std::vector<AttentionSize> sizes;
  for (int64_t head_dim : {64, 128}) {
    for (int64_t length : lengths) {
      for (int64_t batch : batches.empty() ? std::vector<int64_t>{1} : batches) {
        sizes.push_back({.tokens = length, .head_dim = head_dim, .batch = batch});
      }
      if (figure == 12) sizes.push_back({.tokens = length, .head_dim = head_dim, .pieces = 4});
    }
  }
  return sizes;
}

std::vector<StepRow> rows_of_modes(const std::string& modes, const std::string& schedule) {
  std::vector<StepRow> rows;
  if (modes == "all") {
    for (SpMode mode : kSpModes) rows.push_back({std::string(to_string(mode)), mode, schedule});
    return rows;
  }
  for (const std::string& name : CLI::detail::split(modes, ',')) {
    const SpMode mode = parse_sp_mode(name);
    rows.push_back({name, mode, schedule});
  }
  return rows;
}

}  // namespace braid::app
