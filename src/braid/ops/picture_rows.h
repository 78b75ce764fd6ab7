#pragma once

#include <array>
#include <vector>

#include "braid/ops/group_norm.h"
#include "braid/program/builder.h"

// Parts of convolutions and group norms over a picture whose rows of pixels ranks divide. The
// lowering makes them (parallel/picture_parallel.h). Pixels are rows of values, channels columns.
// Of a video each rank has a band of every frame, T frames one after another.
namespace braid::ops {

// x [n, C] of a rank -> every frame's first row of `width` pixels, then every frame's last row:
// [2 * T * width, C].
struct EdgeRowsAttrs {
  int64_t width = 0;
  int64_t frames = 1;  // T
  bool operator==(const EdgeRowsAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("width", width);
    if (frames != 1) f("frames", frames);
  }
};
extern const OpDef kEdgeRows;

// x [n, C] of rank r, and edges [P * 2 * T * width, C], the edge_rows of all ranks in order -> each
// frame of x between the last row of rank r - 1 and the first row of rank r + 1, as far as there
// are such.
struct WithHaloAttrs {
  int64_t width = 0;
  int rank = 0;        // r
  int ranks = 1;       // P
  int64_t frames = 1;  // T
  bool operator==(const WithHaloAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("width", width);
    f("rank", rank);
    if (frames != 1) f("frames", frames);
  }
  int64_t above() const { return rank > 0 ? width : 0; }  // pixels before a frame of x
  int64_t below() const { return rank + 1 < ranks ? width : 0; }
};
extern const OpDef kWithHalo;

// `count` runs of `rows` rows from row `from` of x or of the edges, `from_stride` rows apart, to
// row `to` of the output, `to_stride` rows apart.
struct RowMove {
  bool edges = false;  // from edges, in place of x
  int64_t from = 0, to = 0, rows = 0, count = 0;
  int64_t from_stride = 0, to_stride = 0;
};
// Of an x with n rows.
std::array<RowMove, 2> moves_of(const EdgeRowsAttrs& attrs, int64_t n);
std::array<RowMove, 3> moves_of(const WithHaloAttrs& attrs, int64_t n);

// x [n, C] of any float -> f32 [1, 2 * groups]: for each group of channels the mean over x, then
// for each group the sum of squared differences from that mean.
struct GroupStatsAttrs {
  int64_t groups = 32;
  bool operator==(const GroupStatsAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("groups", groups);
  }
};
extern const OpDef kGroupStats;

// group_norm of one picture by the statistics of all ranks: x [n, C], w [C], b [C], stats f32 [P,
// 2 * groups], the group_stats of `pixels[p]` pixels of each rank p.
struct GroupNormByAttrs {
  GroupNormAttrs norm;  // batch is 1
  std::vector<int64_t> pixels;
  bool operator==(const GroupNormByAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    norm.fields(f);
    f("ranks", pixels.size());
  }
};
extern const OpDef kGroupNormBy;

// Mean of a group over all ranks' pixels, and the variance, from stats [P, 2 * groups].
struct GroupMoments {
  double mean = 0, variance = 0;
};
GroupMoments group_moments(const GroupNormByAttrs& attrs, const float* stats, int64_t group,
                           int64_t channels_of_group);

}  // namespace braid::ops
