#pragma once

#include "braid/kernels/cpu/linear/linear.h"

namespace braid::cpu {

// y[r] = x[row[r]] w_e^T for the rows r of each expert e, and the gate behind it.

struct ExpertWeight {
  TensorView w;                 // [E, N, K], any float or block dtype
  const float* bias = nullptr;  // [E, N], or null
};

struct ExpertLinearParams {
  const float* x = nullptr;  // rows ldx apart
  int64_t ldx = 0;
  const int32_t* row = nullptr;    // [R] the row of x for each row, or null: row r reads r
  const int32_t* begin = nullptr;  // [E + 1] expert e has the rows begin[e] .. begin[e + 1]
  // [E] first row of expert e in `row`, or in x, and in y; `begin` then only tells the number.
  // null: from begin[e] on.
  const int32_t* first = nullptr;
  // A weight; with a gate two with equal N, (gate, up).
  std::span<const ExpertWeight> weights;
  Gate gate = Gate::none;
  float* y = nullptr;  // [R, N], rows ldy apart
  int64_t ldy = 0;
  // Not 0: expert e's first row is e * y_step elements behind y, instead of at row begin[e].
  int64_t y_step = 0;
};

// Sizes for the scratch: the most rows over all experts together, and per expert.
struct ExpertLinearDesc {
  int64_t rows = 0, rows_of_one = 0;
  int64_t K = 0;
  std::span<const DType> weights;
  Gate gate = Gate::none;
  int threads = 1;
};
int64_t expert_linear_scratch_bytes(const ExpertLinearDesc& desc);

// Called and computed like linear(): an output has linear()'s bits for its rows of x and w. Weights
// of an expert without rows are not read; weights of an expert with up to kMaxStreamRows rows are
// read once for all rows. `desc` is at least as large as the work.
void expert_linear(const ExpertLinearParams& params, const ExpertLinearDesc& desc, LinearIsa isa,
                   std::byte* scratch, const Team& team);

}  // namespace braid::cpu
