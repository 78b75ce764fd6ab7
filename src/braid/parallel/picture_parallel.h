#pragma once

#include <string>
#include <vector>

#include "braid/ops/conv2d.h"
#include "braid/ops/group_norm.h"
#include "braid/parallel/layout_plan.h"

namespace braid {

// Divides a picture's rows of pixels over P ranks, in a network of convolutions and group norms:
// `input` has `width` pixels a row, and each rank an even share of the rows. Weights are whole on
// each rank. Fails with kInvalidArgument with fewer rows than ranks.
LayoutPlan picture_parallel(const Program& program, const std::string& input, int64_t width, int P);

// The same op on every rank, between `builders` of the ranks. Rank p has the rows `pixels[p]` of x.

// A convolution (B = 1, stride 1, at most 3 rows of taps): neighbours' rows come by a gather of
// all ranks' first and last rows.
ValueId lower_conv2d(std::vector<Builder>& builders, const std::string& axis,
                     const ops::Conv2dAttrs& attrs, const ops::Conv2dInputs& in,
                     const std::vector<Range>& pixels);
// A group norm (B = 1): statistics come by a gather.
ValueId lower_group_norm(std::vector<Builder>& builders, const std::string& axis,
                         const ops::GroupNormAttrs& attrs, ValueId x,
                         const ops::GroupNormWeights& weights, const std::vector<Range>& pixels);

}  // namespace braid
