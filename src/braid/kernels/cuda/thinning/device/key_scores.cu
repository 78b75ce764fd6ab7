#include "braid/kernels/cuda/thinning/device/key_scores.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;

struct ScoresArgs {
  const int32_t* order;
  const float* paid[KeyScoresParams::kMostPaid];
  float* scores;
  const ops::ScoredPart::Sum* sums;
  const ops::ScoredPart::Readers* readers;
  int heads;
  KeyScoresParams::Part part[kMostThinnedParts];
};

// A thread per place in a part's order and KV head.
__global__ void __launch_bounds__(kThreads) scores_kernel(const ScoresArgs args) {
  const KeyScoresParams::Part& part = args.part[blockIdx.y];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t place = i / args.heads, h = i % args.heads;
  if (place >= part.rows) return;
  const int64_t j = args.order[(part.row + place) * args.heads + h];
  float sum = args.paid[0][(part.paid_row + j) * args.heads + h];
  int64_t seen = part.queries - max(int64_t{0}, j + 1 - part.sees);
  for (int s = part.sums_begin; s < part.sums_end; ++s) {
    const ops::ScoredPart::Sum& more = args.sums[s];
    if (place < more.rows) sum += args.paid[more.paid][(more.row + place) * args.heads + h];
  }
  for (int r = part.readers_begin; r < part.readers_end; ++r) {
    if (place < args.readers[r].keys) seen += args.readers[r].queries;
  }
  args.scores[(part.row + j) * args.heads + h] = sum / static_cast<float>(seen);
}

}  // namespace

void load_key_scores() {
  load_kernel(scores_kernel);
}

void key_scores(const KeyScoresParams& p, LaunchContext context) {
  context.pdl = false;
  if (p.parts.empty()) return;
  BRAID_CHECK(p.parts.size() <= kMostThinnedParts, "{} parts", p.parts.size());
  ScoresArgs args{.order = p.order,
                  .paid = {},
                  .scores = p.scores,
                  .sums = p.sums,
                  .readers = p.readers,
                  .heads = p.heads,
                  .part = {}};
  std::ranges::copy(p.paid, args.paid);
  std::ranges::copy(p.parts, args.part);
  int64_t rows = 0;
  for (const KeyScoresParams::Part& part : p.parts) rows = std::max<int64_t>(rows, part.rows);
  const auto blocks = static_cast<unsigned>(ceil_div(rows * p.heads, int64_t{kThreads}));
  launch_kernel(context, scores_kernel, dim3(blocks, static_cast<unsigned>(p.parts.size())),
                kThreads, 0, args);
}

}  // namespace braid::cuda
