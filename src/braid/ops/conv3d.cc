#include "braid/ops/conv3d.h"

#include <algorithm>

#include "braid/base/math.h"
#include "braid/ops/conv_reference.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

constexpr std::string_view kOp = "conv3d";

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<Conv3dAttrs>();
  BRAID_CHECK(in.size() == 5 && a.height > 0 && a.width > 0 && a.padding >= 0 && a.stride > 0 &&
                  a.upsample > 0 && a.frame_stride > 0 && a.frame_upsample > 0,
              "{} inputs", in.size());
  const ValueType &x = in[0], &w = in[1], &before = in[4];
  const int64_t frame = a.height * a.width;
  require_rank(kOp, "x", x, 2);
  require_float(kOp, "x", x);
  require_rank(kOp, "w", w, 5);
  require_float(kOp, "w", w);
  require_dim(kOp, "w", w, 1, x.shape[1]);
  require_dim(kOp, "w", w, 3, (2 * a.padding) + 1);
  require_dim(kOp, "w", w, 4, (2 * a.padding) + 1);
  if (x.shape[0] == 0 || x.shape[0] % frame != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: x is {}, no whole frames of {}x{}", kOp, to_string(x),
         a.height, a.width);
  }
  const int64_t all = a.out_size(a.height);
  if (a.first_row < 0 || a.rows < 0 || a.first_row + a.out_height() > all) {
    fail(ErrorCode::kInvalidArgument, "{}: rows {} to {} of {}", kOp, a.first_row,
         a.first_row + a.out_height(), all);
  }
  const int64_t pixels = a.out_frames(x.shape[0] / frame) * a.out_height() * a.out_width();
  if (in[2].shape.rank() != 0) {
    require_rank(kOp, "bias", in[2], 1);
    require_dim(kOp, "bias", in[2], 0, w.shape[0]);
  }
  if (in[3].shape.rank() != 0) {
    require_rank(kOp, "residual", in[3], 2);
    require_dtype(kOp, "residual", in[3], x.dtype);
    require_dim(kOp, "residual", in[3], 0, pixels);
    require_dim(kOp, "residual", in[3], 1, w.shape[0]);
  }
  if (before.shape.rank() != 0) {
    require_rank(kOp, "before", before, 2);
    require_dtype(kOp, "before", before, x.dtype);
    require_dim(kOp, "before", before, 1, x.shape[1]);
    if (before.shape[0] % frame != 0 ||
        before.shape[0] / frame * a.frame_upsample < w.shape[2] - 1) {
      fail(ErrorCode::kInvalidArgument, "{}: before is {}, no {} whole frames of {}x{}", kOp,
           to_string(before), ceil_div(w.shape[2] - 1, a.frame_upsample), a.height, a.width);
    }
  }
  return {{x.dtype, {pixels, w.shape[0]}, x.axis}};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  const Shape& w = in[1].shape;
  const int64_t products = w.elems() / w[0];  // per output
  return elementwise_cost(in, out, work, 2.0 * static_cast<double>(products));
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(5, 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<Conv3dAttrs>();
  const TensorView &x = call.in[0], &w = call.in[1], &before = call.in[4];
  const int64_t O = w.shape[0], C = w.shape[1], Kt = w.shape[2], K = w.shape[3];
  const int64_t frame = a.height * a.width;
  std::vector<float> weights;  // [O, C, Kt, K, K]
  for (int64_t r = 0; r < w.rows(); ++r) {
    const std::vector<float> row = load_row(w, r);
    weights.insert(weights.end(), row.begin(), row.end());
  }
  const std::vector<float> bias = call.in[2].data ? load_row(call.in[2], 0) : std::vector<float>(O);
  for (int64_t pixel = 0; pixel < call.out[0].shape[0]; ++pixel) {
    const int64_t line = pixel / a.out_width(), column = pixel % a.out_width();
    const int64_t t = line / a.out_height(), row = line % a.out_height();
    std::vector<double> sums(bias.begin(), bias.end());
    for (int64_t kt = 0; kt < Kt; ++kt) {
      const int64_t s = (t * a.frame_stride) + kt - (Kt - 1);  // in u
      const bool earlier = s < 0 && before.data != nullptr;
      const int64_t at = earlier ? (before.shape[0] / frame) - ceil_div(-s, a.frame_upsample)
                                 : (std::max<int64_t>(0, s) + a.first_lacks()) / a.frame_upsample;
      for (int64_t ky = 0; ky < K; ++ky) {
        for (int64_t kx = 0; kx < K; ++kx) {
          const int64_t v = (row * a.stride) + ky - a.padding_above(),
                        u = (column * a.stride) + kx - a.padding;
          if (v < 0 || u < 0 || v >= a.height * a.upsample || u >= a.width * a.upsample) continue;
          const int64_t y = v / a.upsample, z = u / a.upsample;
          const auto from = load_row(earlier ? before : x, (((at * a.height) + y) * a.width) + z);
          for (int64_t o = 0; o < O; ++o) {
            for (int64_t c = 0; c < C; ++c) {
              const int64_t tap = (((((o * C) + c) * Kt) + kt) * K + ky) * K + kx;
              sums[o] += double{weights[tap]} * from[c];
            }
          }
        }
      }
    }
    store_conv_pixel(call, pixel, sums, a.silu);
  }
}

}  // namespace

const OpDef kConv3d = {.kind = "conv3d",
                       .infer = infer,
                       .mutated_inputs = {},
                       .cost = cost,
                       .shard = shard,
                       .reference = reference};

ValueId conv3d(Builder& b, const Conv3dInputs& in, const Conv3dAttrs& attrs) {
  return b.op1(kConv3d, Attrs::of(attrs), {in.x, in.w, in.bias, in.residual, in.before});
}

}  // namespace braid::ops
