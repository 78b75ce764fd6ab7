#pragma once

#include "braid/program/builder.h"

// Communication as ops. The lowering of parallel/ puts them in, models never do. `P` ranks of one
// mesh axis take part; parts are in elements of the sharded dimension.
namespace braid::ops {

struct CommAttrs {
  std::string axis;          // mesh axis, "tp"
  int dim = 0;               // dimension that is gathered or scattered
  std::vector<Range> parts;  // [P], of that dimension
  int rank = 0;              // which of the parts is this rank's
  bool operator==(const CommAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
    if (!parts.empty()) f("to", to_string(Placement::shard(dim, parts)));
  }
};

// y = sum_r x_r, the same on every rank: f32 [T, C].
extern const OpDef kAllReduce;

// y[:, parts[r]] = x_r (dim 1) or y[parts[r], :] = x_r (dim 0): the whole value on every rank.
extern const OpDef kAllGather;

// y_r = sum_s x_s restricted to parts[r] of `dim`.
extern const OpDef kReduceScatter;

}  // namespace braid::ops
