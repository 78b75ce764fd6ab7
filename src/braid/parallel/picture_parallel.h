#pragma once

#include <string>
#include <vector>

#include "braid/parallel/layout_plan.h"

namespace braid {

// Divides rows of pixels over P ranks in a network with convolutions and group norms. Each of
// `inputs` has whole frames with `height` rows of `width` pixels. A rank has an even share of every
// frame's rows; the rank's rows of all frames stand together, rank after rank. Weights are whole on
// each rank. Fails with kInvalidArgument for fewer rows than ranks.
LayoutPlan picture_parallel(const Program& program, const std::vector<std::string>& inputs,
                            int64_t height, int64_t width, int P);

// Whether lower_picture_op divides the op; others go by their sharding rules.
bool divides_pictures(const Op& op);

// The op on every rank; `builders` has a builder per rank, `in` the op's inputs on the ranks. Rank
// p has `pixels[p]` of the first input. A convolution (stride 1, at most 3 rows of taps) gathers
// all ranks' first and last rows, a group norm (B = 1) statistics; other ops keep rows in place.
ValueId lower_picture_op(std::vector<Builder>& builders, const std::string& axis, const Op& op,
                         const std::vector<ValueId>& in, const std::vector<Range>& pixels);

}  // namespace braid
