// Binds sequence-parallel attention's reads and writes of a model (ops/sequence.h).
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/pointwise/device/gather_rows.h"
#include "braid/kernels/cuda/pointwise/device/move_rows.h"
#include "braid/ops/sequence.h"

namespace braid::cuda {
namespace {

// Parameters are made anew at each launch, since operands may have moved.
BoundKernel bind_move(const LaunchArgs& args, MoveRowsParams (*make)(const OpCall&),
                      const int64_t* rows) {
  const RowsConfig config = choose_map(move_rows_desc(make(args.call)), args.device.num_sms);
  return [&call = args.call, make, rows, config](const LaunchContext& context) {
    MoveRowsParams p = make(call);
    p.rows = rows;
    move_rows(p, config, context);
  };
}

// A rank's rows keep their order and their bytes.
MoveRowsParams make_copy(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const int64_t n = x.shape.rank() == 4 ? x.shape[1] : x.shape[0];
  return {.x = {x}, .y = {y}, .n = n, .row_bytes = x.bytes() / n};
}

int64_t cache_row_bytes(const TensorView& cache) {
  return bytes_of(cache.dtype, cache.shape[2] * cache.shape[3]);
}

MoveRowsParams make_read(const OpCall& call) {
  return {.x = {call.in[1], call.in[2]},
          .y = {call.out[0], call.out[1]},
          .num = 2,
          .n = call.in[0].shape[0],
          .row_bytes = cache_row_bytes(call.in[1]),
          .from = call.in[0]};
}

MoveRowsParams make_write(const OpCall& call) {
  return {.x = {call.in[0], call.in[1]},
          .y = {call.in[3], call.in[4]},
          .num = 2,
          .n = call.in[2].shape[0],
          .row_bytes = cache_row_bytes(call.in[3]),
          .to = call.in[2]};
}

BoundKernel bind_copy(const LaunchArgs& args) {
  return bind_move(args, make_copy, args.live(BatchAxis::shard));
}
BoundKernel bind_read(const LaunchArgs& args) {
  return bind_move(args, make_read, nullptr);
}
BoundKernel bind_write(const LaunchArgs& args) {
  return bind_move(args, make_write, nullptr);
}

BoundKernel bind_pick(const LaunchArgs& args) {
  const auto make = [](const OpCall& call, const BatchPart* part) {
    return GatherRowsParams{.x = call.in[0],
                            .rows = call.in[1],
                            .y = call.out[0],
                            .part = part,
                            .zeros_for_none = true};
  };
  const RowsConfig config =
      choose_map(gather_rows_desc(make(args.call, args.part)), args.device.num_sms);
  return [&call = args.call, part = args.part, config, make](const LaunchContext& context) {
    gather_rows(make(call, part), config, context);
  };
}

// Rows are moved unchanged: the cache has attention's type.
KernelInfo same_type(const Op& op, const ValueType& from, const ValueType& to) {
  if (from.dtype != to.dtype) {
    fail(ErrorCode::kUnsupported, "{} at '{}': {} to {} on a GPU, wanted the same type",
         op.def->kind, op.scope, name(from.dtype), name(to.dtype));
  }
  return {fmt::format("{}.cuda", op.def->kind), 0};
}

}  // namespace

void add_token_kernels(KernelTable& table) {
  table.add(ops::kToSequence.kind, simple_kernel(ops::kToSequence.kind, bind_copy));
  table.add(ops::kToTokens.kind, simple_kernel(ops::kToTokens.kind, bind_copy));
  table.add(ops::kPickRows.kind, simple_kernel(ops::kPickRows.kind, bind_pick));
  table.add(ops::kKvRead.kind,
            {.info = [](const Op& op, TypeList in, TypeList out,
                        const DeviceInfo&) { return same_type(op, in[1], out[0]); },
             .bind = bind_read});
  table.add(ops::kKvWrite.kind,
            {.info = [](const Op& op, TypeList in, TypeList,
                        const DeviceInfo&) { return same_type(op, in[0], in[3]); },
             .bind = bind_write});
}

}  // namespace braid::cuda
