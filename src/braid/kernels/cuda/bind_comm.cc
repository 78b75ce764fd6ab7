// Binds the communication ops of a mesh axis, and ops fused with communication.
#include <algorithm>

#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/comm/device/collectives.h"
#include "braid/kernels/cuda/comm/device/rows.h"
#include "braid/kernels/cuda/comm/handover_run.h"
#include "braid/kernels/cuda/pointwise/device/add.h"
#include "braid/kernels/cuda/pointwise/device/norm.h"
#include "braid/kernels/cuda/register.h"
#include "braid/ops/axis_ranks.h"
#include "braid/ops/comm.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/linear.h"
#include "braid/ops/one_sided.h"

namespace braid::cuda {
namespace {

KernelInfo named(const Op& op) {
  return {fmt::format("{}.peer", op.def->kind), 0};
}

// [rows, cols] of the whole value: y's for all_gather, else x's.
struct Whole {
  CollectiveOp op;
  int64_t rows;
  int64_t cols;
  const int64_t* live;
};

BoundKernel bind_collective(const LaunchArgs& args, DeviceComm& comm, size_t in,
                            const Whole& whole) {
  const OpCall& call = args.call;
  const DType dtype = call.in[in].dtype;
  const auto params = [&call, in, live = whole.live] {
    return CollectiveParams{.x = call.in[in].data, .y = call.out[0].data, .live_rows = live};
  };
  CollectiveDesc desc = describe(comm, whole.op, dtype, whole.rows, whole.cols, params());
  const CollectiveConfig config = choose(desc, comm.limits());
  prepare(comm, desc, config);
  return [&comm, desc, config, params](const LaunchContext& context) {
    collective(comm, desc, params(), config, context);
  };
}

BoundKernel bind_all_reduce(const LaunchArgs& args, DeviceComm& comm) {
  const TensorView& x = args.call.in[0];
  return bind_collective(
      args, comm, 0, {CollectiveOp::all_reduce, x.shape[0], x.cols(), args.live(args.call.axis)});
}

BoundKernel bind_reduce_scatter(const LaunchArgs& args, DeviceComm& comm) {
  const TensorView& x = args.call.in[0];
  return bind_collective(
      args, comm, 0,
      {CollectiveOp::reduce_scatter, x.shape[0], x.cols(), args.live(args.call.axis)});
}

BoundKernel bind_all_gather(const LaunchArgs& args, DeviceComm& comm) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::CommAttrs>();
  const TensorView& y = call.out[0];
  const bool tokens = call.axis == BatchAxis::shard;
  if (attrs.dim == 0 && (tokens || attrs.parts == ops::token_parts(y.shape[0], attrs.ranks))) {
    return bind_collective(args, comm, 0,
                           {CollectiveOp::all_gather, y.shape[0], y.cols(),
                            args.live(tokens ? BatchAxis::token : BatchAxis::none)});
  }
  // Uneven rows are columns of a single row.
  const bool flat = attrs.dim == 0;
  std::vector<Range> parts = attrs.parts;
  for (Range& part : parts) {
    if (flat) part = {part.begin * y.cols(), part.end * y.cols()};
  }
  const auto params = [&call, &comm, parts, flat, live = flat ? nullptr : args.live(call.axis)] {
    const auto view = [flat](const TensorView& v) {
      return flat ? make_view(v.data, v.dtype, {1, v.shape.elems()}) : v;
    };
    return GatherColumnsParams{
        .x = view(call.in[0]),
        .y = view(call.out[0]),
        .begin = parts[comm.index()].begin,
        .parts = comm.limits().across_machines ? parts : std::vector<Range>(),
        .live_rows = live};
  };
  prepare_gather_columns(comm, params());
  return [&comm, params](const LaunchContext& context) { gather_columns(comm, params(), context); };
}

BoundKernel bind_take_shard(const LaunchArgs& args, DeviceComm&) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::TakeShardAttrs>();
  if (!attrs.columns.empty()) {
    const Range part = attrs.columns[attrs.rank];
    const auto copy = [&call, part, live = args.live(call.axis)] {
      return ConvertParams{
          .x = slice_cols(call.in[0], part.begin, part.end), .y = call.out[0], .rows = live};
    };
    return [copy, config = choose_map(convert_desc(copy()), args.device.num_sms)](
               const LaunchContext& context) { convert(copy(), config, context); };
  }
  return [&call, live = args.live(BatchAxis::token)](const LaunchContext& context) {
    const auto& attrs = call.attrs<ops::TakeShardAttrs>();
    take_shard({.x = call.in[0],
                .y = call.out[0],
                .ranks = attrs.ranks,
                .rank = attrs.rank,
                .live_rows = live},
               context);
  };
}

// The fused kernels take norm weights in bf16 and f32: others as a copy.
std::shared_ptr<DeviceMemory> widened_norm(const LaunchArgs& args) {
  const TensorView& w = args.call.in[2];
  return w.dtype == DType::f16 ? row_as(args, w, DType::f32) : nullptr;
}

ReduceNormParams norm_params(const OpCall& call, const int64_t* live,
                             const std::shared_ptr<DeviceMemory>& widened) {
  const TensorView& x = call.in[0];
  return {.dtype = x.dtype,
          .x = x.data,
          .r = call.in[1].as<const float>(),
          .w = widened ? widened->data() : call.in[2].data,
          .w_dtype = widened ? DType::f32 : call.in[2].dtype,
          .s = call.out[0].as<float>(),
          .y = call.out[1].data,
          .rows = x.shape[0],
          .cols = x.cols(),
          .live_rows = live,
          .eps = call.attrs<ops::ReduceNormAttrs>().eps};
}

// Data of a single shot goes in a kernel; more data is reduced first, into y, and normalized there.
BoundKernel bind_reduce_norm(const LaunchArgs& args, DeviceComm& comm) {
  const OpCall& call = args.call;
  const TensorView& x = call.in[0];
  const int64_t* live = args.live(call.axis);
  const bool one_shot =
      x.bytes() <= comm.limits().line_bytes && x.cols() % 8 == 0 && x.dtype == call.out[1].dtype;
  if (one_shot) {
    const ReduceNormConfig config = choose_reduce_norm(x.shape[0], x.cols(), comm.limits());
    return [&call, &comm, live, config, w = widened_norm(args)](const LaunchContext& context) {
      all_reduce_add_rms_norm(comm, norm_params(call, live, w), config, context);
    };
  }
  BRAID_CHECK(x.dtype == call.out[1].dtype, "all_reduce_add_rms_norm of {} to {}", name(x.dtype),
              name(call.out[1].dtype));
  const auto reduce_params = [&call, live] {
    return CollectiveParams{.x = call.in[0].data, .y = call.in[0].data, .live_rows = live};
  };
  const CollectiveDesc desc =
      describe(comm, CollectiveOp::all_reduce, x.dtype, x.shape[0], x.cols(), reduce_params());
  const CollectiveConfig config = choose(desc, comm.limits());
  prepare(comm, desc, config);
  const auto norm = [&call, live] {
    return RmsNormParams{.a = call.in[1],
                         .b = call.in[0],
                         .w = call.in[2],
                         .s = call.out[0],
                         .y = call.out[1],
                         .eps = call.attrs<ops::ReduceNormAttrs>().eps,
                         .group = call.in[0].cols(),
                         .rows = live};
  };
  const RowsConfig rows = choose_norm(rms_norm_desc(norm()), args.device.num_sms);
  return [&comm, desc, config, reduce_params, norm, rows](LaunchContext context) {
    collective(comm, desc, reduce_params(), config, context);
    context.pdl = true;
    rms_norm(norm(), rows, context);
  };
}

// With ranks on several machines: three launches. The sum of a rank's rows goes to the front of y,
// and the rows' norm to the front of x, which no other launch reads.
BoundKernel bind_scatter_norm_gather_across(const LaunchArgs& args, DeviceComm& comm) {
  const OpCall& call = args.call;
  const TensorView& x = call.in[0];
  const int64_t* live = args.live(call.axis);
  BRAID_CHECK(x.dtype == call.out[1].dtype, "scattered norm of {} to {}", name(x.dtype),
              name(call.out[1].dtype));
  const auto params = [&call, live] {
    return CollectiveParams{.x = call.in[0].data, .y = call.out[1].data, .live_rows = live};
  };
  const auto norm = [&call, rows = args.live(BatchAxis::shard)] {
    TensorView sum = call.out[1], y = call.in[0];
    sum.shape = call.in[1].shape;
    y.shape = call.in[1].shape;
    return RmsNormParams{.a = call.in[1],
                         .b = sum,
                         .w = call.in[2],
                         .s = call.out[0],
                         .y = y,
                         .eps = call.attrs<ops::ReduceNormAttrs>().eps,
                         .group = y.cols(),
                         .rows = rows};
  };
  const CollectiveDesc scattered =
      describe(comm, CollectiveOp::reduce_scatter, x.dtype, x.shape[0], x.cols(), params());
  const CollectiveDesc gathered =
      describe(comm, CollectiveOp::all_gather, x.dtype, x.shape[0], x.cols(), params());
  const CollectiveConfig first = choose(scattered, comm.limits());
  const CollectiveConfig second = choose(gathered, comm.limits());
  prepare(comm, scattered, first);
  prepare(comm, gathered, second);
  const RowsConfig rows = choose_norm(rms_norm_desc(norm()), args.device.num_sms);
  return [=, &comm](LaunchContext context) {
    collective(comm, scattered, params(), first, context);
    context.pdl = false;
    rms_norm(norm(), rows, context);
    collective(comm, gathered, params(), second, context);
  };
}

BoundKernel bind_scatter_norm_gather(const LaunchArgs& args, DeviceComm& comm) {
  if (comm.limits().across_machines) return bind_scatter_norm_gather_across(args, comm);
  const OpCall& call = args.call;
  const TensorView& x = call.in[0];
  const int64_t* live = args.live(call.axis);
  const ReduceNormConfig config =
      choose_scatter_norm(x.shape[0], x.cols(), comm.size(), comm.limits());
  return [&call, &comm, live, config, w = widened_norm(args)](const LaunchContext& context) {
    reduce_scatter_add_rms_norm_all_gather(comm, norm_params(call, live, w), config, context);
  };
}

// The linear that the fused op stands for.
Op linear_of(const Op& op) {
  const auto& a = op.attrs.as<ops::LinearAllReduceAttrs>();
  return {&ops::kLinear,
          Attrs::of(ops::LinearAttrs{.n = 1, .bias_elsewhere = a.bias_elsewhere, .dtype = a.dtype}),
          op.inputs,
          op.outputs,
          op.scope,
          op.tag};
}

// A product and, in place, the sum over ranks: two launches that overlap at their seam.
BoundKernel bind_linear_all_reduce(const KernelTable& table, const LaunchArgs& args,
                                   DeviceComm& comm) {
  struct Inner {
    Op op;
    OpCall call;
  };
  const OpCall& call = args.call;
  auto inner = std::make_shared<Inner>(Inner{linear_of(*call.op), call});
  inner->call.op = &inner->op;
  const BoundKernel product = table.at(ops::kLinear.kind)
                                  .bind({.call = inner->call,
                                         .part = args.part,
                                         .workspace = args.workspace,
                                         .device = args.device,
                                         .stream = args.stream,
                                         .arena = args.arena,
                                         .whole_batch = args.whole_batch,
                                         .own_rows = args.own_rows});
  const int64_t* live = args.live(call.axis);
  const auto params = [&call, live] {
    return CollectiveParams{.x = call.out[0].data, .y = call.out[0].data, .live_rows = live};
  };
  const TensorView& y = call.out[0];
  const CollectiveDesc desc =
      describe(comm, CollectiveOp::all_reduce, y.dtype, y.shape[0], y.cols(), params());
  const CollectiveConfig config = choose(desc, comm.limits());
  prepare(comm, desc, config);
  return [inner, product, &comm, desc, config, params](LaunchContext context) {
    product(context);
    context.pdl = true;
    collective(comm, desc, params(), config, context);
  };
}

}  // namespace

void add_comm_kernels(KernelTable& table, const StreamComms& comms,
                      const std::vector<StreamComms>& parts) {
  const auto comm_of = [comms, parts](const LaunchArgs& args) -> DeviceComm& {
    const int ranks = ops::axis_of(*args.call.op).ranks;
    const auto part = std::ranges::find_if(
        parts, [&](const StreamComms& p) { return p[args.stream]->size() == ranks; });
    return *(part == parts.end() ? comms : *part)[args.stream];
  };
  using Bind = BoundKernel (*)(const LaunchArgs&, DeviceComm&);
  const auto add = [&](const OpDef& def, Bind bind) {
    table.add(
        def.kind,
        {.info = [](const Op& op, TypeList, TypeList, const DeviceInfo&) { return named(op); },
         .bind = [comm_of, bind](const LaunchArgs& args) { return bind(args, comm_of(args)); }});
  };
  add(ops::kAllReduce, bind_all_reduce);
  add(ops::kAllGather, bind_all_gather);
  add(ops::kReduceScatter, bind_reduce_scatter);
  add(ops::kTakeShard, bind_take_shard);
  add(ops::kAllReduceAddRmsNorm, bind_reduce_norm);
  add(ops::kReduceScatterAddRmsNormAllGather, bind_scatter_norm_gather);
  add_relays(table, comms);
  table.add(ops::kLinearAllReduce.kind,
            {.info =
                 [&table](const Op& op, TypeList in, TypeList out, const DeviceInfo& device) {
                   KernelInfo info =
                       table.at(ops::kLinear.kind).info(linear_of(op), in, out, device);
                   info.name = named(op).name;
                   return info;
                 },
             .bind =
                 [&table, comm_of](const LaunchArgs& args) {
                   return bind_linear_all_reduce(table, args, comm_of(args));
                 }});
}

void drop_communication(KernelTable& table) {
  const auto add = [&](const OpDef& def, auto bind) {
    table.add(def.kind, {.info =
                             [](const Op&, TypeList, TypeList, const DeviceInfo&) {
                               return KernelInfo{.name = "none", .holds_units = false};
                             },
                         .bind = bind});
  };
  table.remove_join(kHandover);
  for (const OpDef* def : {&ops::kAllReduce, &ops::kAllGather, &ops::kReduceScatter, &ops::kPull,
                           &ops::kPush, &ops::kSync}) {
    add(*def, [](const LaunchArgs&) { return [](const LaunchContext&) {}; });
  }
  for (const OpDef* def : {&ops::kLinearAllReduce, &ops::kAllReduceAddRmsNorm,
                           &ops::kReduceScatterAddRmsNormAllGather}) {
    add(*def, [](const LaunchArgs& args) -> BoundKernel {
      fail(ErrorCode::kUnsupported,
           "without communication: '{}' computes and communicates in one kernel; prompts with "
           "--schedule sequential have no such op",
           args.call.op->def->kind);
    });
  }
}

}  // namespace braid::cuda
