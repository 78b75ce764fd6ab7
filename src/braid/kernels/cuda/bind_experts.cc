// Binds route, expert_gated, expert_linear and combine.
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/experts/device/combine.h"
#include "braid/kernels/cuda/experts/device/expert_product.h"
#include "braid/kernels/cuda/experts/device/route.h"
#include "braid/kernels/cuda/pointwise/device/gated.h"
#include "braid/ops/experts.h"

namespace braid::cuda {
namespace {

ExpertDevice expert_device(const DeviceInfo& device) {
  return {.compute_capability = device.compute_capability, .num_sms = device.num_sms};
}

KernelInfo route_info(const Op& op, TypeList in, TypeList, const DeviceInfo&) {
  const int64_t T = in[0].shape[0], k = op.attrs.as<ops::RouteAttrs>().top_k;
  if (route_in_one(T, k)) return {"route.one", 0};
  return {"route.sorted", T * k * static_cast<int64_t>(sizeof(int32_t))};
}

BoundKernel bind_route(const LaunchArgs& args) {
  const OpCall& call = args.call;
  // The device alone knows this extent, and writes it.
  auto* expert_rows = const_cast<int64_t*>(args.live(BatchAxis::expert_row));
  return [&call, expert_rows, tokens = args.live(call.axis),
          chosen = reinterpret_cast<int32_t*>(args.workspace)](const LaunchContext& context) {
    route({.attrs = call.attrs<ops::RouteAttrs>(),
           .logits = call.in[0].as<const float>(),
           .bias = call.in[1].as<const float>(),
           .weight = call.out[0].as<float>(),
           .place = call.out[1].as<int32_t>(),
           .token = call.out[2].as<int32_t>(),
           .begin = call.out[3].as<int32_t>(),
           .chosen = chosen,
           .tokens = tokens,
           .expert_rows = expert_rows,
           .T = static_cast<int>(call.in[0].shape[0]),
           .E = static_cast<int>(call.in[0].shape[1])},
          context);
  };
}

// Index of the operands in both expert products.
struct Operands {
  bool gated;
  size_t begin, first, count;  // `count` weights from `first` on, their biases behind them

  explicit Operands(const Op& op)
      : gated(op.def == &ops::kExpertGated),
        begin(gated ? 2 : 1),
        first(begin + 1),
        count(gated ? 2 : 1) {}
};

// Gate and up of two dtypes are two products and the gate's own kernel.
bool one_product(const Op& op, TypeList in) {
  const Operands at(op);
  return !at.gated || in[at.first].dtype == in[at.first + 1].dtype;
}

ExpertWeight weight_of(const TensorView& w, const TensorView& bias) {
  return {.data = w.data,
          .dtype = w.dtype,
          .row_bytes = w.row_bytes,
          .bias = bias.data,
          .bias_dtype = bias.dtype};
}

// The product with the op's weights [first, first + count).
ExpertProduct product_of(const OpCall& call, size_t first, size_t count, const TensorView& y) {
  const Operands at(*call.op);
  const TensorView& x = call.in[0];
  const TensorView& w = call.in[at.first];
  const bool biased = at.gated || !call.attrs<ops::ExpertLinearAttrs>().bias_elsewhere;
  ExpertProduct p{.x = x.data,
                  .x_stride = x.cols(),
                  .y = y.data,
                  .y_stride = y.cols(),
                  .begin = call.in[at.begin].as<const int32_t>(),
                  .token = at.gated ? call.in[1].as<const int32_t>() : nullptr,
                  .gated = count == 2,
                  .experts = static_cast<int>(w.shape[0]),
                  .n = static_cast<int>(w.shape[1]),
                  .k = static_cast<int>(w.shape[2]),
                  .rows = y.shape[0],
                  .rows_of_one = x.shape[0]};
  if (at.gated) {
    p.gelu = call.attrs<ops::GatedAttrs>().activation == ops::Activation::gelu_tanh;
  }
  for (size_t i = 0; i < count; ++i) {
    const TensorView& bias = call.in[at.first + at.count + first + i];
    p.w[i] = weight_of(call.in[at.first + first + i], biased ? bias : TensorView{});
  }
  return p;
}

KernelInfo product_info(const Op& op, TypeList in, TypeList out, const DeviceInfo& device) {
  const Operands at(op);
  const ValueType &x = in[0], &w = in[at.first];
  if (x.dtype != DType::bf16) {
    fail(ErrorCode::kUnsupported, "{}: x is {}, CUDA kernels take bf16", op.def->kind,
         name(x.dtype));
  }
  const bool one = one_product(op, in);
  const ExpertShape shape = {.dtype = w.dtype,
                             .experts = w.shape[0],
                             .n = w.shape[1],
                             .k = w.shape[2],
                             .rows = out[0].shape[0],
                             .rows_of_one = x.shape[0],
                             .gated = at.gated && one,
                             .aligned = w.shape[2] % 8 == 0};
  const bool tiles = choose_experts_form(shape, expert_device(device)).form == ExpertForm::tiles;
  return {fmt::format("{}.{}", op.def->kind, tiles ? "tiles" : "stream"),
          one ? 0 : bytes_of(out[0])};
}

BoundKernel bind_product(const LaunchArgs& args) {
  prepare_expert_products();
  const OpCall& call = args.call;
  const Operands at(*call.op);
  const ExpertDevice device = expert_device(args.device);
  const auto choose = [device](const ExpertProduct& p) {
    return choose_experts_form(expert_shape(p), device);
  };
  if (!at.gated || call.in[at.first].dtype == call.in[at.first + 1].dtype) {
    const ExpertConfig config = choose(product_of(call, 0, at.count, call.out[0]));
    return [&call, at, config](const LaunchContext& context) {
      expert_product(product_of(call, 0, at.count, call.out[0]), config, context);
    };
  }
  // The gate's product goes to the workspace, the other product to y. The gate then meets y in
  // place.
  const TensorView gate = make_view(args.workspace, call.out[0].dtype, call.out[0].shape);
  const ExpertConfig first = choose(product_of(call, 0, 1, gate));
  const ExpertConfig second = choose(product_of(call, 1, 1, call.out[0]));
  const auto gate_params = [&call, gate, rows = args.live(BatchAxis::expert_row)] {
    return GatedParams{.gate = gate,
                       .up = call.out[0],
                       .y = call.out[0],
                       .activation = call.attrs<ops::GatedAttrs>().activation,
                       .rows = rows};
  };
  const RowsConfig config = choose_map(gated_desc(gate_params()), args.device.num_sms);
  return [&call, gate, first, second, gate_params, config](LaunchContext context) {
    expert_product(product_of(call, 0, 1, gate), first, context);
    context.pdl = true;
    expert_product(product_of(call, 1, 1, call.out[0]), second, context);
    gated(gate_params(), config, context);
  };
}

BoundKernel bind_combine(const LaunchArgs& args) {
  const OpCall& call = args.call;
  return [&call, rows = args.live(call.axis)](const LaunchContext& context) {
    const bool own = !call.attrs<ops::CombineAttrs>().shared_elsewhere;
    combine({.weight = call.in[0].as<const float>(),
             .place = call.in[1].as<const int32_t>(),
             .x = call.in[2],
             .shared = own ? call.in[3] : TensorView{},
             .gate = call.in[4].as<const float>(),
             .y = call.out[0],
             .k = static_cast<int>(call.in[0].cols()),
             .rows = rows},
            context);
  };
}

}  // namespace

void add_expert_kernels(KernelTable& table) {
  table.add(ops::kRoute.kind, {.info = route_info, .bind = bind_route});
  table.add(ops::kExpertGated.kind, {.info = product_info, .bind = bind_product});
  table.add(ops::kExpertLinear.kind, {.info = product_info, .bind = bind_product});
  table.add(ops::kCombine.kind, simple_kernel(ops::kCombine.kind, bind_combine));
}

}  // namespace braid::cuda
