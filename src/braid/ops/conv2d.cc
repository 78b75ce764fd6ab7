#include "braid/ops/conv2d.h"

#include "braid/ops/conv_reference.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

constexpr std::string_view kOp = "conv2d";

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<Conv2dAttrs>();
  BRAID_CHECK(in.size() == 4 && a.batch > 0 && a.height > 0 && a.width > 0 && a.stride > 0 &&
                  a.padding >= 0 && a.upsample > 0,
              "{} inputs", in.size());
  const ValueType &x = in[0], &w = in[1];
  require_rank(kOp, "x", x, 2);
  require_float(kOp, "x", x);
  require_dim(kOp, "x", x, 0, a.batch * a.height * a.width);
  require_rank(kOp, "w", w, 4);
  require_float(kOp, "w", w);
  require_dim(kOp, "w", w, 1, x.shape[1]);
  const int64_t height = a.out_height(w.shape[2]), width = a.out_width(w.shape[3]);
  const int64_t all = a.out_size(a.height, w.shape[2]);
  if (a.first_row < 0 || a.rows < 0 || (a.rows > 0 && a.first_row + height > all)) {
    fail(ErrorCode::kInvalidArgument, "{}: rows {} to {} of {}", kOp, a.first_row,
         a.first_row + a.rows, all);
  }
  if (height < 1 || width < 1) {
    fail(ErrorCode::kInvalidArgument, "{}: a kernel of {}x{} over {}x{} pixels", kOp, w.shape[2],
         w.shape[3], a.height * a.upsample, a.width * a.upsample);
  }
  const Shape y = {a.batch * height * width, w.shape[0]};
  if (in[2].shape.rank() != 0) {
    require_rank(kOp, "bias", in[2], 1);
    require_dim(kOp, "bias", in[2], 0, w.shape[0]);
  }
  if (in[3].shape.rank() != 0) {
    require_rank(kOp, "residual", in[3], 2);
    require_dtype(kOp, "residual", in[3], x.dtype);
    require_dim(kOp, "residual", in[3], 0, y[0]);
    require_dim(kOp, "residual", in[3], 1, y[1]);
  }
  return {{x.dtype, y, x.axis}};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  const Shape& w = in[1].shape;
  return elementwise_cost(in, out, work, 2.0 * static_cast<double>(w[1] * w[2] * w[3]));
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(4, 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<Conv2dAttrs>();
  const TensorView &x = call.in[0], &w = call.in[1];
  const int64_t O = w.shape[0], C = w.shape[1], kh = w.shape[2], kw = w.shape[3];
  const int64_t height = a.out_height(kh), width = a.out_width(kw);
  std::vector<float> weights;  // [O, C, kh, kw]
  for (int64_t r = 0; r < w.rows(); ++r) {
    const std::vector<float> row = load_row(w, r);
    weights.insert(weights.end(), row.begin(), row.end());
  }
  const std::vector<float> bias = call.in[2].data ? load_row(call.in[2], 0) : std::vector<float>(O);
  for (int64_t pixel = 0; pixel < a.batch * height * width; ++pixel) {
    const int64_t column = pixel % width, row = pixel / width % height;
    const int64_t picture = pixel / width / height;
    std::vector<double> sums(bias.begin(), bias.end());
    for (int64_t ky = 0; ky < kh; ++ky) {
      for (int64_t kx = 0; kx < kw; ++kx) {
        const int64_t v = (row * a.stride) + ky - a.padding_above(),
                      u = (column * a.stride) + kx - a.padding;
        if (v < 0 || u < 0 || v >= a.height * a.upsample || u >= a.width * a.upsample) continue;
        const auto from =
            load_row(x, (((picture * a.height) + (v / a.upsample)) * a.width) + (u / a.upsample));
        for (int64_t o = 0; o < O; ++o) {
          for (int64_t c = 0; c < C; ++c) {
            sums[o] += double{weights[(((((o * C) + c) * kh) + ky) * kw) + kx]} * from[c];
          }
        }
      }
    }
    store_conv_pixel(call, pixel, sums, a.silu);
  }
}

}  // namespace

const OpDef kConv2d = {.kind = "conv2d",
                       .infer = infer,
                       .mutated_inputs = {},
                       .cost = cost,
                       .shard = shard,
                       .reference = reference};

ValueId conv2d(Builder& b, const Conv2dInputs& in, const Conv2dAttrs& attrs) {
  return b.op1(kConv2d, Attrs::of(attrs), {in.x, in.w, in.bias, in.residual});
}

}  // namespace braid::ops
