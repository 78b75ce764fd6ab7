// Binds the ops of networks without a KV cache, but for attention and pictures.
#include <algorithm>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/pointwise/device/copy_pieces.h"
#include "braid/kernels/cuda/pointwise/device/layer_norm.h"
#include "braid/kernels/cuda/pointwise/device/rotate_rows.h"
#include "braid/kernels/cuda/pointwise/device/tables.h"
#include "braid/kernels/cuda/pointwise/device/unary.h"
#include "braid/ops/concat.h"
#include "braid/ops/join_sequence.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/relative_bias.h"

namespace braid::cuda {
namespace {

// Parameters are made anew at each launch, since operands may have moved; the choice is made once.
template <class Params, class Describe, class Choose, class Run>
BoundKernel bind_rows(const LaunchArgs& args, Params (*make)(const OpCall&), Describe describe,
                      Choose choose, Run run) {
  const RowsConfig config = choose(describe(make(args.call)), args.device.num_sms);
  return [&call = args.call, config, make, run](const LaunchContext& context) {
    run(make(call), config, context);
  };
}

ModulationRows columns_of(const TensorView& modulation, int64_t column) {
  if (column == ops::kNoColumn) return {};
  return {modulation.as<const float>() + column, modulation.cols()};
}

// Number of x's rows per row of the modulation.
int64_t rows_per_sequence(const TensorView& x, const TensorView& modulation) {
  return modulation.data == nullptr ? 1 : std::max<int64_t>(1, x.shape[0] / modulation.shape[0]);
}

LayerNormParams make_norm(const OpCall& call) {
  const auto& a = call.attrs<ops::LayerNormAttrs>();
  const TensorView &x = call.in[0], &modulation = call.in[3];
  return {.x = x,
          .w = call.in[1],
          .b = call.in[2],
          .scale = columns_of(modulation, a.scale_column),
          .shift = columns_of(modulation, a.shift_column),
          .rows_per_sequence = rows_per_sequence(x, modulation),
          .y = call.out[0],
          .eps = a.eps,
          .group = a.group};
}

GatedAddParams make_gated_add(const OpCall& call) {
  return {.a = call.in[0],
          .b = call.in[1],
          .gate = columns_of(call.in[2], call.attrs<ops::GatedAddAttrs>().gate_column),
          .rows_per_sequence = rows_per_sequence(call.in[0], call.in[2]),
          .y = call.out[0]};
}

UnaryParams make_unary(const OpCall& call) {
  return {.x = call.in[0], .y = call.out[0], .function = call.attrs<ops::UnaryAttrs>().function};
}

RotateRowsParams make_rotate(const OpCall& call) {
  return {.x = call.in[0],
          .table = call.in[1],
          .y = call.out[0],
          .attrs = call.attrs<ops::RopeTableAttrs>()};
}

BoundKernel bind_norm(const LaunchArgs& args) {
  return bind_rows(args, make_norm, layer_norm_desc, choose_norm, layer_norm);
}
BoundKernel bind_gated_add(const LaunchArgs& args) {
  return bind_rows(args, make_gated_add, gated_add_desc, choose_map, gated_add);
}
BoundKernel bind_unary(const LaunchArgs& args) {
  return bind_rows(args, make_unary, unary_desc, choose_map, unary);
}
BoundKernel bind_rotate(const LaunchArgs& args) {
  return bind_rows(args, make_rotate, rotate_rows_desc, choose_map, rotate_rows);
}

BoundKernel bind_timestep(const LaunchArgs& args) {
  return [&call = args.call](const LaunchContext& context) {
    timestep_embedding(call.in[0], call.out[0], call.attrs<ops::TimestepEmbeddingAttrs>(), context);
  };
}

BoundKernel bind_relative_bias(const LaunchArgs& args) {
  const auto& a = args.call.attrs<ops::RelativeBiasAttrs>();
  std::vector<int32_t> buckets;
  for (int64_t distance = 1 - a.length; distance < a.length; ++distance) {
    buckets.push_back(static_cast<int32_t>(
        ops::relative_bucket(distance, args.call.in[0].shape[0], a.max_distance)));
  }
  const auto bytes = std::ssize(buckets) * static_cast<int64_t>(sizeof(int32_t));
  const auto table = std::make_shared<CudaMemory>(args.device.id, bytes);
  check_cuda(cudaMemcpy(table->data(), buckets.data(), bytes, cudaMemcpyHostToDevice),
             "buckets of distances");
  return [&call = args.call, table](const LaunchContext& context) {
    relative_bias(call.in[0], reinterpret_cast<const int32_t*>(table->data()), call.out[0],
                  context);
  };
}

// Binds a move, whose pieces are found at each launch.
BoundKernel bind_move(const LaunchArgs& args, std::vector<CopyPiece> (*make)(const OpCall&)) {
  return [&call = args.call, make](const LaunchContext& context) {
    std::vector<CopyPiece> pieces = make(call);
    std::erase_if(pieces, [](const CopyPiece& piece) { return piece.from == piece.to; });
    copy_pieces(pieces, context);
  };
}

std::vector<CopyPiece> concat_rows_pieces(const OpCall& call) {
  const int64_t batch = call.attrs<ops::SequenceRowsAttrs>().batch;
  const TensorView& y = call.out[0];
  std::vector<CopyPiece> pieces;
  std::byte* to = y.data;
  for (const TensorView& part : call.in) {
    const int64_t bytes = part.bytes() / batch;
    pieces.push_back({part.data, to, batch, bytes, bytes, y.bytes() / batch});
    to += bytes;
  }
  return pieces;
}

std::vector<CopyPiece> take_rows_pieces(const OpCall& call) {
  const auto& a = call.attrs<ops::TakeRowsAttrs>();
  const TensorView &x = call.in[0], &y = call.out[0];
  const int64_t bytes = y.bytes() / a.batch;
  return {{x.row(a.begin), y.data, a.batch, bytes, x.bytes() / a.batch, bytes}};
}

std::vector<CopyPiece> concat_columns_pieces(const OpCall& call) {
  const TensorView& y = call.out[0];
  std::vector<CopyPiece> pieces;
  std::byte* to = y.data;
  for (const TensorView& part : call.in) {
    pieces.push_back({part.data, to, y.rows(), part.row_bytes, part.row_bytes, y.row_bytes});
    to += part.row_bytes;
  }
  return pieces;
}

std::vector<CopyPiece> join_sequence_pieces(const OpCall& call) {
  std::vector<CopyPiece> pieces;
  std::byte* to = call.out[0].data;
  for (const TensorView& part : call.in) {
    pieces.push_back({part.data, to, 1, part.bytes(), part.bytes(), part.bytes()});
    to += part.bytes();
  }
  return pieces;
}

std::vector<CopyPiece> cut_sequence_pieces(const OpCall& call) {
  std::vector<CopyPiece> pieces;
  const std::byte* from = call.in[0].data;
  for (const TensorView& part : call.out) {
    pieces.push_back({from, part.data, 1, part.bytes(), part.bytes(), part.bytes()});
    from += part.bytes();
  }
  return pieces;
}

BoundKernel bind_concat_rows(const LaunchArgs& args) {
  return bind_move(args, concat_rows_pieces);
}
BoundKernel bind_take_rows(const LaunchArgs& args) {
  return bind_move(args, take_rows_pieces);
}
BoundKernel bind_concat_columns(const LaunchArgs& args) {
  return bind_move(args, concat_columns_pieces);
}

BoundKernel bind_join_sequence(const LaunchArgs& args) {
  return bind_move(args, join_sequence_pieces);
}
BoundKernel bind_cut_sequence(const LaunchArgs& args) {
  return bind_move(args, cut_sequence_pieces);
}

}  // namespace

void add_dense_kernels(KernelTable& table) {
  // These kernels work on all rows, live or not: their values' rows belong to a single micro-batch.
  // A join that keeps its place moves no rows of any axis.
  const auto info = [](const Op& op, TypeList in, TypeList, const DeviceInfo&) -> KernelInfo {
    if (in[0].axis != BatchAxis::none && in[0].axis != BatchAxis::row && !ops::keeps_place(op)) {
      fail(ErrorCode::kUnsupported,
           "{}: rows of the batch axis {} on a GPU, wanted are none or row", op.def->kind,
           to_string(in[0].axis));
    }
    return {fmt::format("{}.cuda", op.def->kind), 0};
  };
  const auto add = [&](const OpDef& def, BoundKernel (*bind)(const LaunchArgs&)) {
    table.add(def.kind, {.info = info, .bind = bind});
  };
  add(ops::kLayerNorm, bind_norm);
  add(ops::kGatedAdd, bind_gated_add);
  add(ops::kUnary, bind_unary);
  add(ops::kRopeTable, bind_rotate);
  add(ops::kTimestepEmbedding, bind_timestep);
  add(ops::kRelativeBias, bind_relative_bias);
  add(ops::kConcatRows, bind_concat_rows);
  add(ops::kTakeRows, bind_take_rows);
  add(ops::kConcatColumns, bind_concat_columns);
  add(ops::kJoinSequence, bind_join_sequence);
  add(ops::kReshapeRows, bind_join_sequence);  // of a single part
  table.add(ops::kCutSequence.kind, simple_kernel(ops::kCutSequence.kind, bind_cut_sequence));
}

}  // namespace braid::cuda
