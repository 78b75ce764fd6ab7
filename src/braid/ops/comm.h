#pragma once

#include "braid/program/builder.h"

// Communication as ops. The lowering of parallel/ puts them in, models never do. `P` ranks of one
// mesh axis take part; parts are in elements of the sharded dimension.
namespace braid::ops {

struct CommAttrs {
  std::string axis;          // mesh axis, "tp"
  int ranks = 1;             // P
  int dim = 0;               // all_gather: the dimension that is gathered
  std::vector<Range> parts;  // all_gather: [P], of that dimension
  bool operator==(const CommAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
    f("ranks", ranks);
    if (!parts.empty()) f("from", to_string(Placement::shard(dim, parts)));
  }
};

// y = sum_r x_r, the same on every rank: f32 [T, C].
extern const OpDef kAllReduce;

// y[:, parts[r]] = x_r (dim 1) or y[parts[r], :] = x_r (dim 0): the whole value on every rank.
extern const OpDef kAllGather;

}  // namespace braid::ops
