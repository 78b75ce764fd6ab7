#include "braid/ops/picture_rows.h"

#include <cmath>
#include <cstring>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

void require_rows(std::string_view op, const ValueType& x, int64_t width, int64_t frames) {
  require_rank(op, "x", x, 2);
  const int64_t row = width * frames;
  if (width > 0 && frames > 0 && x.shape[0] >= row && x.shape[0] % row == 0) return;
  fail(ErrorCode::kInvalidArgument, "{}: x is {}, wanted are rows of {} pixels in {} frames", op,
       to_string(x), width, frames);
}

std::vector<ValueType> infer_edges(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<EdgeRowsAttrs>();
  require_rows("edge_rows", in[0], a.width, a.frames);
  return {{in[0].dtype, {2 * a.frames * a.width, in[0].shape[1]}}};
}

// x between rows of `edges`.
ValueType with_halo(std::string_view op, const WithHaloAttrs& a, const ValueType& x,
                    const ValueType& edges) {
  require_rows(op, x, a.width, a.frames);
  require_dtype(op, "edges", edges, x.dtype);
  require_dim(op, "edges", edges, 0, 2 * a.frames * a.width * a.ranks);
  require_dim(op, "edges", edges, 1, x.shape[1]);
  const int64_t halo = a.frames * (a.above() + a.below());
  return {x.dtype, {x.shape[0] + halo, x.shape[1]}};
}

std::vector<ValueType> infer_halo(const Attrs& attrs, TypeList in) {
  return {with_halo("with_halo", attrs.as<WithHaloAttrs>(), in[0], in[1])};
}

void require_groups(std::string_view op, const ValueType& x, int64_t groups) {
  require_rank(op, "x", x, 2);
  require_float(op, "x", x);
  if (groups > 0 && x.shape[0] > 0 && x.shape[1] % groups == 0) return;
  fail(ErrorCode::kInvalidArgument, "{}: x is {}, no pixels or no {} groups of channels", op,
       to_string(x), groups);
}

std::vector<ValueType> infer_stats(const Attrs& attrs, TypeList in) {
  const int64_t groups = attrs.as<GroupStatsAttrs>().groups;
  require_groups("group_stats", in[0], groups);
  return {{DType::f32, {1, 2 * groups}}};
}

std::vector<ValueType> infer_norm(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<GroupNormByAttrs>();
  require_groups("group_norm_by", in[0], a.norm.groups);
  require_dim("group_norm_by", "w", in[1], 0, in[0].shape[1]);
  require_dim("group_norm_by", "b", in[2], 0, in[0].shape[1]);
  require_dtype("group_norm_by", "stats", in[3], DType::f32);
  require_dim("group_norm_by", "stats", in[3], 0, std::ssize(a.pixels));
  require_dim("group_norm_by", "stats", in[3], 1, 2 * a.norm.groups);
  if (!a.halo) return {in[0]};
  if (a.halo->frames != 1) {
    fail(ErrorCode::kInvalidArgument, "group_norm_by: a halo of {} frames, wanted is 1",
         a.halo->frames);
  }
  return {with_halo("group_norm_by", *a.halo, in[0], in[4])};
}

Cost cost_copy(const Attrs&, TypeList, TypeList out, const Work& work) {
  return {.bytes = 2 * live_bytes(out[0], work)};
}

Cost cost_stats(const Attrs&, TypeList in, TypeList, const Work& work) {
  return {.flops = 4 * live_elems(in[0], work), .bytes = live_bytes(in[0], work)};
}

Cost cost_norm(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 8);
}

ShardRule whole(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 1);
}

template <class A>
void reference_moves(const OpCall& call) {
  for (const RowMove& m : moves_of(call.attrs<A>(), call.in[0].shape[0])) {
    const TensorView& from = call.in[m.edges ? 1 : 0];
    for (int64_t i = 0; i < m.count && m.rows > 0; ++i) {
      std::memcpy(call.out[0].row(m.to + (i * m.to_stride)), from.row(m.from + (i * m.from_stride)),
                  m.rows * from.row_bytes);
    }
  }
}

void reference_stats(const OpCall& call) {
  const int64_t groups = call.attrs<GroupStatsAttrs>().groups;
  const TensorView& x = call.in[0];
  const int64_t of_group = x.cols() / groups;
  const double n = static_cast<double>(x.shape[0] * of_group);
  std::vector<double> mean(groups), squares(mean.size());
  for (int pass : {0, 1}) {
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      const std::vector<float> row = load_row(x, i);
      for (size_t c = 0; c < row.size(); ++c) {
        const size_t g = c / static_cast<size_t>(of_group);
        if (pass == 0) mean[g] += row[c] / n;
        if (pass == 1) squares[g] += (row[c] - mean[g]) * (row[c] - mean[g]);
      }
    }
  }
  float* out = call.out[0].as<float>();
  for (size_t g = 0; g < mean.size(); ++g) {
    out[g] = static_cast<float>(mean[g]);
    out[g + mean.size()] = static_cast<float>(squares[g]);
  }
}

void reference_norm(const OpCall& call) {
  const auto& a = call.attrs<GroupNormByAttrs>();
  const TensorView& x = call.in[0];
  const int64_t of_group = x.cols() / a.norm.groups;
  const std::vector<float> w = load_row(call.in[1], 0), b = load_row(call.in[2], 0);
  std::vector<GroupMoments> moments;
  for (int64_t g = 0; g < a.norm.groups; ++g) {
    moments.push_back(group_moments(a, call.in[3].as<const float>(), g, of_group));
  }
  for (const RowMove& move : moves_of(a, x.shape[0])) {
    for (int64_t i = 0; i < move.rows; ++i) {
      std::vector<float> row = load_row(call.in[move.edges ? 4 : 0], move.from + i);
      for (size_t c = 0; c < row.size(); ++c) {
        const GroupMoments& m = moments[c / static_cast<size_t>(of_group)];
        const double y = ((row[c] - m.mean) / std::sqrt(m.variance + a.norm.eps) * w[c]) + b[c];
        row[c] = static_cast<float>(a.norm.silu ? y / (1 + std::exp(-y)) : y);
      }
      store_row(call.out[0], move.to + i, row);
    }
  }
}

}  // namespace

std::array<RowMove, 2> moves_of(const EdgeRowsAttrs& a, int64_t n) {
  const int64_t frame = n / a.frames;
  RowMove first{.rows = a.width, .count = a.frames, .from_stride = frame, .to_stride = a.width};
  RowMove last = first;
  last.from = frame - a.width;
  last.to = a.frames * a.width;
  return {first, last};
}

std::array<RowMove, 3> moves_of(const WithHaloAttrs& a, int64_t n) {
  const int64_t frame = n / a.frames, edge = a.frames * a.width;
  const int64_t whole = a.above() + frame + a.below();
  RowMove above{.edges = true,
                .from = ((2 * a.rank) - 1) * edge,  // unread without a rank above
                .rows = a.above(),
                .count = a.frames,
                .from_stride = a.width,
                .to_stride = whole};
  RowMove own{
      .to = a.above(), .rows = frame, .count = a.frames, .from_stride = frame, .to_stride = whole};
  RowMove below = above;
  below.from = 2 * (a.rank + 1) * edge;
  below.to = a.above() + frame;
  below.rows = a.below();
  return {above, own, below};
}

std::array<RowMove, 3> moves_of(const GroupNormByAttrs& a, int64_t n) {
  if (a.halo) return moves_of(*a.halo, n);
  return {RowMove{.rows = n, .count = 1}};
}

GroupMoments group_moments(const GroupNormByAttrs& a, const float* stats, int64_t group,
                           int64_t channels_of_group) {
  const int64_t groups = a.norm.groups;
  double n = 0, sum = 0, squares = 0;
  for (size_t p = 0; p < a.pixels.size(); ++p) {
    const auto m = static_cast<double>(a.pixels[p] * channels_of_group);
    n += m;
    sum += m * stats[(static_cast<int64_t>(p) * 2 * groups) + group];
  }
  const double mean = sum / n;
  for (size_t p = 0; p < a.pixels.size(); ++p) {
    const float* of_rank = stats + (static_cast<int64_t>(p) * 2 * groups);
    const double off = of_rank[group] - mean;
    squares += of_rank[group + groups] +
               (static_cast<double>(a.pixels[p] * channels_of_group) * off * off);
  }
  return {mean, squares / n};
}

const OpDef kEdgeRows = {.kind = "edge_rows",
                         .infer = infer_edges,
                         .mutated_inputs = {},
                         .cost = cost_copy,
                         .shard = whole,
                         .reference = reference_moves<EdgeRowsAttrs>};

const OpDef kWithHalo = {.kind = "with_halo",
                         .infer = infer_halo,
                         .mutated_inputs = {},
                         .cost = cost_copy,
                         .shard = whole,
                         .reference = reference_moves<WithHaloAttrs>};

const OpDef kGroupStats = {.kind = "group_stats",
                           .infer = infer_stats,
                           .mutated_inputs = {},
                           .cost = cost_stats,
                           .shard = whole,
                           .reference = reference_stats};

const OpDef kGroupNormBy = {.kind = "group_norm_by",
                            .infer = infer_norm,
                            .mutated_inputs = {},
                            .cost = cost_norm,
                            .shard = whole,
                            .reference = reference_norm};

}  // namespace braid::ops
