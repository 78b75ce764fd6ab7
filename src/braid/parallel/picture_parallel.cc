#include "braid/parallel/picture_parallel.h"

#include <algorithm>
#include <optional>

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

using Halos = std::map<std::pair<size_t, ValueId>, ValueId>;

// A group norm that a convolution reads, with the ranks' inputs.
struct NormBefore {
  const ops::GroupNormAttrs* attrs = nullptr;  // null: none
  std::vector<ValueId> in;
};

// A rank's share of an op.
class RankPart {
 public:
  RankPart(Builder& builder, const std::string& axis, size_t rank, const std::vector<Range>& pixels,
           Halos& haloed)
      : b_(builder), axis_(axis), rank_(rank), pixels_(pixels), haloed_(haloed) {}

  ValueId conv2d(const ops::Conv2dAttrs& attrs, const std::vector<ValueId>& in,
                 const NormBefore& norm) {
    const int64_t taps = b_.type(in[1]).shape[2];
    require_taps("conv2d", attrs.stride, taps, attrs.padding);
    ops::Conv2dAttrs local = attrs;
    local.height = own(attrs.height);
    ops::Conv2dInputs inputs{.x = in[0], .w = in[1], .bias = in[2], .residual = in[3]};
    if (taps > 1) {
      inputs.x = norm.attrs ? group_norm(*norm.attrs, norm.in, halo(attrs.width, 1))
                            : with_halo(in[0], attrs.width, attrs.batch);
      local.first_row = above() * attrs.upsample;
      local.rows = local.height * attrs.upsample;
      local.height += above() + below();
    }
    return ops::conv2d(b_, inputs, local);
  }

  ValueId conv3d(const ops::Conv3dAttrs& attrs, const std::vector<ValueId>& in) {
    const int64_t taps = b_.type(in[1]).shape[3];
    require_taps("conv3d", attrs.stride, taps, attrs.padding);
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
      local.first_row = above() * attrs.upsample;
      local.rows = local.height * attrs.upsample;
      local.height += above() + below();
    }
    return ops::conv3d(b_, inputs, local);
  }

  ValueId group_norm(const ops::GroupNormAttrs& attrs, const std::vector<ValueId>& in,
                     std::optional<ops::WithHaloAttrs> halo = {}) {
    BRAID_CHECK(attrs.batch == 1, "a group norm of {} pictures over ranks", attrs.batch);
    ops::GroupNormByAttrs by{attrs, {}, halo};
    for (const Range& of_rank : pixels_) by.pixels.push_back(of_rank.size());
    const ValueId stats =
        b_.op1(ops::kGroupStats, Attrs::of(ops::GroupStatsAttrs{attrs.groups}), {in[0]});
    const ValueId edges = halo ? all_edges(in[0], *halo) : kNoValue;
    const ValueId all = gather(stats, 1);
    return b_.op1(ops::kGroupNormBy, Attrs::of(std::move(by)), {in[0], in[1], in[2], all, edges});
  }

  ValueId latent_scale(ops::LatentScaleAttrs attrs, const std::vector<ValueId>& in) {
    attrs.height = own(attrs.height);
    attrs.latent_height = own(attrs.latent_height);
    return ops::latent_scale(b_, in[0], in[1], in[2], attrs);
  }

  // Whole frames; `kept` for a convolution of the next chunk, with their halo if x has one.
  ValueId take_rows(ops::TakeRowsAttrs attrs, ValueId x, bool kept) {
    attrs.begin = own(attrs.begin);
    attrs.rows = own(attrs.rows);
    const auto haloed = haloed_.find({rank_, x});
    if (!kept || haloed == haloed_.end()) return ops::take_rows(b_, x, attrs);
    const int64_t rows = b_.type(x).shape[0], all = b_.type(haloed->second).shape[0];
    attrs.begin = attrs.begin * all / rows;
    attrs.rows = attrs.rows * all / rows;
    const ValueId frames = ops::take_rows(b_, haloed->second, attrs);
    haloed_[{rank_, frames}] = frames;
    return frames;
  }

 private:
  // This rank's share of `n` rows, in each frame or in whole frames.
  int64_t own(int64_t n) const { return n * pixels_[rank_].size() / pixels_.back().end; }
  int64_t above() const { return rank_ > 0 ? 1 : 0; }
  int64_t below() const { return rank_ + 1 < pixels_.size() ? 1 : 0; }

  ops::WithHaloAttrs halo(int64_t width, int64_t frames) const {
    return {width, static_cast<int>(rank_), static_cast<int>(pixels_.size()), frames};
  }

  // All ranks have `rows` rows.
  ValueId gather(ValueId x, int64_t rows) {
    return b_.op1(ops::kAllGather, gather_rows(axis_, pixels_.size(), rows), {x});
  }

  ValueId all_edges(ValueId x, const ops::WithHaloAttrs& halo) {
    const ops::EdgeRowsAttrs edges{halo.width, halo.frames};
    return gather(b_.op1(ops::kEdgeRows, Attrs::of(edges), {x}), 2 * halo.frames * halo.width);
  }

  ValueId with_halo(ValueId x, int64_t width, int64_t frames) {
    if (const auto known = haloed_.find({rank_, x}); known != haloed_.end()) return known->second;
    const ops::WithHaloAttrs attrs = halo(width, frames);
    return haloed_[{rank_, x}] = b_.op1(ops::kWithHalo, Attrs::of(attrs), {x, all_edges(x, attrs)});
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
  Halos& haloed_;
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

bool PictureLowering::is_output(ValueId id) const {
  return std::ranges::find(logical_.outputs, id) != logical_.outputs.end();
}

const Op* PictureLowering::convolution_of(const Op& norm) const {
  if (norm.def != &ops::kGroupNorm || norm.attrs.as<ops::GroupNormAttrs>().batch != 1) {
    return nullptr;
  }
  const ValueId y = norm.outputs[0];
  if (is_output(y)) return nullptr;
  const Op* reader = nullptr;
  for (const Op& op : logical_.ops) {
    const auto reads = std::ranges::count(op.inputs, y);
    if (reads == 0) continue;
    const bool alone = reader == nullptr && reads == 1 && op.def == &ops::kConv2d;
    if (!alone || op.inputs[0] != y || logical_.value(op.inputs[1]).type.shape[2] == 1) {
      return nullptr;
    }
    reader = &op;
  }
  return reader;
}

const Op* PictureLowering::norm_before(const Op& convolution) const {
  if (convolution.def != &ops::kConv2d) return nullptr;
  for (const Op& op : logical_.ops) {
    if (op.def != &ops::kGroupNorm || op.outputs[0] != convolution.inputs[0]) continue;
    return convolution_of(op) == &convolution ? &op : nullptr;
  }
  return nullptr;
}

// Whether only convolutions of the next chunk read the rows taken.
bool PictureLowering::is_kept(const Op& take) const {
  const ValueId y = take.outputs[0];
  return !is_output(y) && std::ranges::all_of(logical_.ops, [&](const Op& op) {
    const auto reads = std::ranges::count(op.inputs, y);
    return reads == 0 || (reads == 1 && op.def == &ops::kConv3d && op.inputs[4] == y &&
                          logical_.value(op.inputs[1]).type.shape[3] > 1);
  });
}

ValueId PictureLowering::source(const Op& op) const {
  const Op* norm = norm_before(op);
  return norm ? norm->inputs[0] : op.inputs[0];
}

std::pair<ValueId, Placement> PictureLowering::lower(std::vector<Builder>& builders,
                                                     const std::string& axis, const Op& op,
                                                     const std::function<ValueId(ValueId)>& mapped,
                                                     const std::vector<Range>& pixels) {
  const auto mapped_all = [&](const Op& of) {
    std::vector<ValueId> ids;
    for (ValueId id : of.inputs) ids.push_back(mapped(id));
    return ids;
  };
  const std::vector<ValueId> in = mapped_all(op);
  NormBefore norm;
  if (const Op* before = norm_before(op)) {
    norm = {&before->attrs.as<ops::GroupNormAttrs>(), mapped_all(*before)};
  }
  const bool kept = op.def == &ops::kTakeRows && is_kept(op);
  ValueId out = kNoValue;
  std::vector<Range> rows;
  for (size_t r = 0; r < builders.size(); ++r) {
    RankPart part(builders[r], axis, r, pixels, haloed_);
    if (op.def == &ops::kConv2d) {
      out = part.conv2d(op.attrs.as<ops::Conv2dAttrs>(), in, norm);
    } else if (op.def == &ops::kConv3d) {
      out = part.conv3d(op.attrs.as<ops::Conv3dAttrs>(), in);
    } else if (op.def == &ops::kGroupNorm) {
      out = part.group_norm(op.attrs.as<ops::GroupNormAttrs>(), in);
    } else if (op.def == &ops::kLatentScale) {
      out = part.latent_scale(op.attrs.as<ops::LatentScaleAttrs>(), in);
    } else if (op.def == &ops::kTakeRows) {
      out = part.take_rows(op.attrs.as<ops::TakeRowsAttrs>(), in[0], kept);
    } else {
      out = builders[r].op1(*op.def, op.attrs, in);
    }
    const int64_t begin = rows.empty() ? 0 : rows.back().end;
    rows.push_back({begin, begin + builders[r].type(out).shape[0]});
  }
  return {out, Placement::shard(0, std::move(rows))};
}

}  // namespace braid
