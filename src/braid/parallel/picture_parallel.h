#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "braid/parallel/layout_plan.h"

namespace braid {

// Divides rows of pixels over P ranks in a network with convolutions and group norms. Each of
// `inputs` has whole frames with `height` rows of `width` pixels. A rank has an even share of every
// frame's rows; the rank's rows of all frames stand together, rank after rank. Weights are whole on
// each rank. Fails with kInvalidArgument for fewer rows than ranks.
LayoutPlan picture_parallel(const Program& program, const std::vector<std::string>& inputs,
                            int64_t height, int64_t width, int P);

// Whether PictureLowering divides the op; others go by their sharding rules.
bool divides_pictures(const Op& op);

// Lowers a Program's ops over divided pictures, in program order. A convolution (stride 1, at most
// 3 rows of taps) gathers all ranks' first and last rows, a group norm (B = 1) statistics; other
// ops keep rows in place. Where a picture's norm is read by such a convolution alone, neighbours'
// rows come before the norm, which then writes rows and halo in one pass. Frames kept for the next
// chunk keep their halo.
class PictureLowering {
 public:
  explicit PictureLowering(const Program& logical) : logical_(logical) {}

  // Whether the op is a norm that is lowered with the convolution that reads the norm.
  bool postpones(const Op& op) const { return convolution_of(op) != nullptr; }
  // The logical value whose rows ranks divide: input 0, or a postponed norm's.
  ValueId source(const Op& op) const;
  // The op on every rank: its output, and each rank's rows. `builders` has a builder per rank,
  // `mapped` finds the ranks' value of a logical value. Rank p has `pixels[p]` of source(op).
  std::pair<ValueId, Placement> lower(std::vector<Builder>& builders, const std::string& axis,
                                      const Op& op, const std::function<ValueId(ValueId)>& mapped,
                                      const std::vector<Range>& pixels);

 private:
  const Op* convolution_of(const Op& norm) const;
  const Op* norm_before(const Op& convolution) const;
  bool is_kept(const Op& take) const;
  bool is_output(ValueId id) const;

  const Program& logical_;
  std::map<std::pair<size_t, ValueId>, ValueId> haloed_;  // (rank, value) -> the value with halo
};

}  // namespace braid
