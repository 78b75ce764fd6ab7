#include "braid/parallel/picture_parallel.h"

#include <algorithm>

#include "braid/ops/comm.h"
#include "braid/ops/concat.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/latent_scale.h"
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

// A rank's share of an op.
class RankPart {
 public:
  RankPart(Builder& builder, const std::string& axis, size_t rank, const std::vector<Range>& pixels)
      : b_(builder), axis_(axis), rank_(rank), pixels_(pixels) {}

  ValueId conv2d(const ops::Conv2dAttrs& attrs, const std::vector<ValueId>& in) {
    const int64_t taps = b_.type(in[1]).shape[2];
    require_taps("conv2d", attrs.stride, taps, attrs.padding);
    ops::Conv2dAttrs local = attrs;
    local.height = own(attrs.height);
    ops::Conv2dInputs inputs{.x = in[0], .w = in[1], .bias = in[2], .residual = in[3]};
    if (taps > 1) {
      inputs.x = with_halo(in[0], attrs.width, attrs.batch);
      local.first_row = above() * attrs.upsample;
      local.rows = local.height * attrs.upsample;
      local.height += above() + below();
    }
    return ops::conv2d(b_, inputs, local);
  }

  ValueId conv3d(const ops::Conv3dAttrs& attrs, const std::vector<ValueId>& in) {
    const int64_t taps = b_.type(in[1]).shape[3];
    require_taps("conv3d", 1, taps, attrs.padding);
    ops::Conv3dAttrs local = attrs;
    local.height = own(attrs.height);
    ops::Conv3dInputs inputs{
        .x = in[0], .w = in[1], .bias = in[2], .residual = in[3], .before = in[4]};
    if (taps > 1) {
      const int64_t row = local.height * attrs.width;  // pixels in this rank's part of a frame
      inputs.x = with_halo(in[0], attrs.width, pixels_[rank_].size() / row);
      if (in[4] != kNoValue) {
        inputs.before = with_halo(in[4], attrs.width, b_.type(in[4]).shape[0] / row);
      }
      local.first_row = above();
      local.rows = local.height;
      local.height += above() + below();
    }
    return ops::conv3d(b_, inputs, local);
  }

  ValueId group_norm(const ops::GroupNormAttrs& attrs, const std::vector<ValueId>& in) {
    BRAID_CHECK(attrs.batch == 1, "a group norm of {} pictures over ranks", attrs.batch);
    ops::GroupNormByAttrs by{attrs, {}};
    for (const Range& of_rank : pixels_) by.pixels.push_back(of_rank.size());
    const ValueId stats =
        b_.op1(ops::kGroupStats, Attrs::of(ops::GroupStatsAttrs{attrs.groups}), {in[0]});
    const ValueId all = b_.op1(ops::kAllGather, gather_rows(axis_, pixels_.size(), 1), {stats});
    return b_.op1(ops::kGroupNormBy, Attrs::of(std::move(by)), {in[0], in[1], in[2], all});
  }

  ValueId latent_scale(ops::LatentScaleAttrs attrs, const std::vector<ValueId>& in) {
    attrs.height = own(attrs.height);
    attrs.latent_height = own(attrs.latent_height);
    return ops::latent_scale(b_, in[0], in[1], in[2], attrs);
  }

  // Whole frames.
  ValueId take_rows(ops::TakeRowsAttrs attrs, ValueId x) {
    attrs.begin = own(attrs.begin);
    attrs.rows = own(attrs.rows);
    return ops::take_rows(b_, x, attrs);
  }

 private:
  // This rank's share of `n` rows, in each frame or in whole frames.
  int64_t own(int64_t n) const { return n * pixels_[rank_].size() / pixels_.back().end; }
  int64_t above() const { return rank_ > 0 ? 1 : 0; }
  int64_t below() const { return rank_ + 1 < pixels_.size() ? 1 : 0; }

  ValueId with_halo(ValueId x, int64_t width, int64_t frames) {
    const auto P = static_cast<int>(pixels_.size());
    const ValueId edges = b_.op1(ops::kEdgeRows, Attrs::of(ops::EdgeRowsAttrs{width, frames}), {x});
    const ValueId all =
        b_.op1(ops::kAllGather, gather_rows(axis_, pixels_.size(), 2 * frames * width), {edges});
    return b_.op1(ops::kWithHalo,
                  Attrs::of(ops::WithHaloAttrs{width, static_cast<int>(rank_), P, frames}),
                  {x, all});
  }

  static void require_taps(std::string_view op, int64_t stride, int64_t taps, int64_t padding) {
    if (stride == 1 && taps <= 3 && padding == taps / 2) return;
    fail(ErrorCode::kUnsupported,
         "{} over ranks: stride {}, {} rows of taps, padding {}; wanted are 1, 1 or 3, and half of "
         "the taps",
         op, stride, taps, padding);
  }

  Builder& b_;
  const std::string& axis_;
  const size_t rank_;
  const std::vector<Range>& pixels_;
};

}  // namespace

LayoutPlan picture_parallel(const Program& program, const std::vector<std::string>& inputs,
                            int64_t height, int64_t width, int P) {
  if (height < P) {
    fail(ErrorCode::kInvalidArgument, "a picture of {} rows of latents over {} ranks", height, P);
  }
  LayoutPlan plan{.axis = "world",
                  .P = P,
                  .pinned = {},
                  .tokens = {},
                  .rows = RowSharding{.mesh = {}, .pictures = true}};
  for (const std::string& input : inputs) {
    const auto id = program.find(input);
    BRAID_CHECK(id.has_value(), "no input '{}'", input);
    const int64_t frames = program.value(*id).type.shape[0] / (height * width);
    std::vector<Range> shares;
    for (int r = 0; r < P; ++r) {
      const Range rows = even_part(height, P, r);
      shares.push_back({rows.begin * frames * width, rows.end * frames * width});
    }
    plan.pinned[input] = Placement::shard(0, std::move(shares));
  }
  return plan;
}

bool divides_pictures(const Op& op) {
  const OpDef* const divided[] = {&ops::kConv2d,      &ops::kConv3d,   &ops::kGroupNorm,
                                  &ops::kLatentScale, &ops::kTakeRows, &ops::kConcatRows};
  return std::ranges::find(divided, op.def) != std::end(divided);
}

ValueId lower_picture_op(std::vector<Builder>& builders, const std::string& axis, const Op& op,
                         const std::vector<ValueId>& in, const std::vector<Range>& pixels) {
  ValueId out = kNoValue;
  for (size_t r = 0; r < builders.size(); ++r) {
    RankPart part(builders[r], axis, r, pixels);
    if (op.def == &ops::kConv2d) {
      out = part.conv2d(op.attrs.as<ops::Conv2dAttrs>(), in);
    } else if (op.def == &ops::kConv3d) {
      out = part.conv3d(op.attrs.as<ops::Conv3dAttrs>(), in);
    } else if (op.def == &ops::kGroupNorm) {
      out = part.group_norm(op.attrs.as<ops::GroupNormAttrs>(), in);
    } else if (op.def == &ops::kLatentScale) {
      out = part.latent_scale(op.attrs.as<ops::LatentScaleAttrs>(), in);
    } else if (op.def == &ops::kTakeRows) {
      out = part.take_rows(op.attrs.as<ops::TakeRowsAttrs>(), in[0]);
    } else {
      out = builders[r].op1(*op.def, op.attrs, in);
    }
  }
  return out;
}

}  // namespace braid
