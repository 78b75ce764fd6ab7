#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/thinning/device/thin_keys.h"
#include "braid/ops/paid_keys.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// The op key_scores: sums in f32 in the order of the parts' sums.
struct KeyScoresParams {
  static constexpr int kMostPaid = 4;
  // A part, with its sums and readers in the vectors of all parts.
  struct Part {
    int64_t row, paid_row;
    int32_t rows, queries, sees;
    int32_t sums_begin, sums_end, readers_begin, readers_end;
  };
  const int32_t* order = nullptr;                     // [.., heads]
  std::array<const float*, kMostPaid> paid;           // [.., heads]
  float* scores = nullptr;                            // [.., heads]
  std::vector<Part> parts;                            // at most kMostThinnedParts
  const ops::ScoredPart::Sum* sums = nullptr;         // device
  const ops::ScoredPart::Readers* readers = nullptr;  // device
  int heads = 1;
};

void load_key_scores();
void key_scores(const KeyScoresParams& params, LaunchContext context);

}  // namespace braid::cuda
