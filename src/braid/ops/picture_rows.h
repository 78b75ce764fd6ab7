#pragma once

#include <array>
#include <optional>
#include <vector>

#include "braid/ops/group_norm.h"
#include "braid/program/builder.h"

// Convolutions and group norms over a picture with pixel rows divided over ranks. The lowering
// makes these ops (parallel/picture_parallel.h). Pixels are rows of values, channels are columns.
// For a video each rank has a band of every frame, T frames one after another.
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

// x [n, C] on rank r, and edges [P * 2 * T * width, C], all ranks' edge_rows in order -> each
// frame of x between the last row of rank r - 1 and the first row of rank r + 1, if such ranks
// exist.
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

// `count` runs with `rows` rows each, from row `from` of x or of the edges, `from_stride` rows
// apart, to row `to` in the output, `to_stride` rows apart.
struct RowMove {
  bool edges = false;  // from edges, in place of x
  int64_t from = 0, to = 0, rows = 0, count = 0;
  int64_t from_stride = 0, to_stride = 0;
};
// Of an x with n rows.
std::array<RowMove, 2> moves_of(const EdgeRowsAttrs& attrs, int64_t n);
std::array<RowMove, 3> moves_of(const WithHaloAttrs& attrs, int64_t n);

// x [n, C] in any float -> f32 [1, 2 * groups]: each channel group's mean over x, then each group's
// sum of squared differences from the mean.
struct GroupStatsAttrs {
  int64_t groups = 32;
  bool operator==(const GroupStatsAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("groups", groups);
  }
};
extern const OpDef kGroupStats;

// group_norm over one picture by all ranks' statistics: x [n, C], w [C], b [C], stats f32 [P, 2 *
// groups], the group_stats over `pixels[p]` pixels for each rank p, and edges or absent. With
// `halo`, of one frame, the output is the norm of with_halo(x, edges), a value that is not made.
struct GroupNormByAttrs {
  GroupNormAttrs norm;  // batch is 1
  std::vector<int64_t> pixels;
  std::optional<WithHaloAttrs> halo;
  bool operator==(const GroupNormByAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    norm.fields(f);
    f("ranks", pixels.size());
    if (halo) f("halo", halo->width);
  }
};
extern const OpDef kGroupNormBy;
// Rows of x or of the edges (input 4) that a norm writes, and where to.
std::array<RowMove, 3> moves_of(const GroupNormByAttrs& attrs, int64_t n);

// Mean of a group over all ranks' pixels, and the variance, from stats [P, 2 * groups].
struct GroupMoments {
  double mean = 0, variance = 0;
};
GroupMoments group_moments(const GroupNormByAttrs& attrs, const float* stats, int64_t group,
                           int64_t channels_of_group);

}  // namespace braid::ops
