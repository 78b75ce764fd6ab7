#include "braid/parallel/picture_parallel.h"

#include <algorithm>

#include "braid/ops/comm.h"
#include "braid/ops/picture_rows.h"

namespace braid {
namespace {

// Every rank has `rows` rows of the gathered value.
Attrs gather_rows(const std::string& axis, size_t ranks, int64_t rows) {
  ops::CommAttrs attrs{axis, static_cast<int>(ranks), 0, {}};
  for (int64_t r = 0; r < static_cast<int64_t>(ranks); ++r) {
    attrs.parts.push_back({r * rows, (r + 1) * rows});
  }
  return Attrs::of(std::move(attrs));
}

}  // namespace

LayoutPlan picture_parallel(const Program& program, const std::string& input, int64_t width,
                            int P) {
  const auto id = program.find(input);
  BRAID_CHECK(id.has_value(), "no input '{}'", input);
  const int64_t rows = program.value(*id).type.shape[0] / width;
  if (rows < P) {
    fail(ErrorCode::kInvalidArgument, "a picture of {} rows of latents over {} ranks", rows, P);
  }
  LayoutPlan plan{.axis = "world", .P = P, .pinned = {}, .tokens = {}, .rows = RowSharding{}};
  std::vector<Range> shares;
  for (int r = 0; r < P; ++r) {
    const Range share = even_part(rows, P, r);
    shares.push_back({share.begin * width, share.end * width});
  }
  plan.pinned[input] = Placement::shard(0, std::move(shares));
  return plan;
}

ValueId lower_conv2d(std::vector<Builder>& builders, const std::string& axis,
                     const ops::Conv2dAttrs& attrs, const ops::Conv2dInputs& in,
                     const std::vector<Range>& pixels) {
  const size_t P = builders.size();
  ValueId out = kNoValue;
  for (size_t r = 0; r < P; ++r) {
    Builder& b = builders[r];
    const int64_t kernel = b.type(in.w).shape[2], own = pixels[r].size() / attrs.width;
    if (attrs.batch != 1 || attrs.stride != 1 || kernel > 3 || attrs.padding != kernel / 2) {
      fail(ErrorCode::kUnsupported,
           "conv2d over ranks: batch {}, stride {}, {} rows of taps, padding {}; wanted are 1, 1, "
           "1 or 3, and half of the taps",
           attrs.batch, attrs.stride, kernel, attrs.padding);
    }
    ops::Conv2dAttrs local = attrs;
    ops::Conv2dInputs inputs = in;
    local.height = own;
    if (kernel > 1) {
      const ops::WithHaloAttrs halo{attrs.width, static_cast<int>(r), static_cast<int>(P)};
      const ValueId edges =
          b.op1(ops::kEdgeRows, Attrs::of(ops::EdgeRowsAttrs{attrs.width}), {in.x});
      const ValueId all = b.op1(ops::kAllGather, gather_rows(axis, P, 2 * attrs.width), {edges});
      inputs.x = b.op1(ops::kWithHalo, Attrs::of(halo), {in.x, all});
      local.height = own + ((halo.above() + halo.below()) / attrs.width);
      local.first_row = halo.above() / attrs.width * attrs.upsample;
      local.rows = own * attrs.upsample;
    }
    out = ops::conv2d(b, inputs, local);
  }
  return out;
}

ValueId lower_group_norm(std::vector<Builder>& builders, const std::string& axis,
                         const ops::GroupNormAttrs& attrs, ValueId x,
                         const ops::GroupNormWeights& weights, const std::vector<Range>& pixels) {
  BRAID_CHECK(attrs.batch == 1, "a group norm of {} pictures over ranks", attrs.batch);
  ops::GroupNormByAttrs by{attrs, {}};
  for (const Range& own : pixels) by.pixels.push_back(own.size());
  ValueId out = kNoValue;
  for (Builder& b : builders) {
    const ValueId stats =
        b.op1(ops::kGroupStats, Attrs::of(ops::GroupStatsAttrs{attrs.groups}), {x});
    const ValueId all = b.op1(ops::kAllGather, gather_rows(axis, builders.size(), 1), {stats});
    out = b.op1(ops::kGroupNormBy, Attrs::of(by), {x, weights.w, weights.b, all});
  }
  return out;
}

}  // namespace braid
