#pragma once

#include <vector>

#include "braid/kernels/cuda/attention/desc.h"

namespace braid::cuda {

// Result of segment attention for a query row, in f64.
struct ReferenceRow {
  std::vector<double> o;      // [Dv], normalized; zeros where no key is visible
  std::vector<double> o_abs;  // [Dv], the same sum over |v|: the scale of rounding errors
  double s_abs = 0;           // max over visible keys of scale sum_i |q_i k_i|, likewise
  double l = 0;               // sum of e^(s - m)
  double m = 0;               // max s; -inf without a visible key
};

// The scalar reference for query (segment, b, t, h). All pointers of `params` are host memory, page
// tables and lengths too; carried state is merged if desc.load_state. Cost: a row of keys.
ReferenceRow attention_reference(const AttentionDesc& desc, const AttentionParams& params,
                                 int segment, int b, int t, int h);

}  // namespace braid::cuda
