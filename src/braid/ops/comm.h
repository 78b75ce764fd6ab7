#pragma once

#include "braid/program/builder.h"

// Communication as ops. The lowering of parallel/ inserts these ops, models never do. The `P`
// ranks of a mesh axis take part; parts are in elements of the sharded dimension.
//
// With tokens divided over ranks, rank r holds rows even_part(n, P, r) of the n live tokens in a
// launch's part of the batch. The live number n, not the capacity, is divided: parts of a step are
// even for any size, and empty on the last ranks for n < P. Their type is [shard = ceil(T / P),
// C] on every rank.
namespace braid::ops {

struct CommAttrs {
  std::string axis;          // mesh axis, "tp"
  int ranks = 1;             // P
  int dim = 0;               // all_gather: the dimension that is gathered
  std::vector<Range> parts;  // all_gather: [P], in that dimension at capacity
  bool operator==(const CommAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
    f("ranks", ranks);
    if (!parts.empty()) f("from", to_string(Placement::shard(dim, parts)));
  }
};

// y = sum_r x_r, the same on every rank: [T, C] of any float, summed in f32.
extern const OpDef kAllReduce;

// y[:, parts[r]] = x_r (dim 1) or y[rows of r, :] = x_r (dim 0): the whole value on every rank.
// [T, C_r] -> [T, C]; [shard = ceil(T / P), C] -> [token = T, C], with parts = token_parts(T, P).
extern const OpDef kAllGather;

// y_r = sum_p x_p[rows of r, :]: [token = T, C] -> [shard = ceil(T / P), C], as all_reduce.
extern const OpDef kReduceScatter;

// y_r = x[rows of r, :] or, with columns, x[:, columns[r]]: a local copy of a value that every rank
// holds. [token = T, C] -> [shard = ceil(T / P), C]; [T, C] -> [T, C_r].
struct TakeShardAttrs {
  std::string axis;
  int ranks = 1;
  int rank = 0;                // set for each rank by the lowering
  std::vector<Range> columns;  // [P], or none: rows. Parts may overlap
  bool operator==(const TakeShardAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
    f("ranks", ranks);
    f("rank", rank);
    if (!columns.empty()) f("to", to_string(Placement::shard(1, columns)));
  }
};
extern const OpDef kTakeShard;

// The parts of T tokens over P ranks.
std::vector<Range> token_parts(int64_t T, int P);
// [token = T, C] -> [shard = ceil(T / P), C]. `op` is named where x is not such a value.
ValueType token_shard_of(std::string_view op, const ValueType& x, int P);

}  // namespace braid::ops
