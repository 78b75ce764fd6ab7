// Binds linear_unary, a product by the library with the function at its end, and norm_rope_table.
#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/bind_gemm.h"
#include "braid/kernels/cuda/pointwise/device/copy_pieces.h"
#include "braid/kernels/cuda/pointwise/device/norm_rotate.h"
#include "braid/ops/linear_unary.h"

namespace braid::cuda {
namespace {

enum Input : size_t { kX, kW, kBias, kFront };

GemmPointers pointers_of(const OpCall& call, const std::byte* bias, std::byte* workspace) {
  const TensorView& front = call.in[kFront];
  return {.x = call.in[kX].data,
          .w = call.in[kW].data,
          .bias = bias,
          .y = call.out[0].data + (front.data ? front.row_bytes : 0),
          .workspace = workspace};
}

BoundKernel bind_linear_unary(const LaunchArgs& args, GemmStore& store) {
  const OpCall& call = args.call;
  const TensorView &x = call.in[kX], &w = call.in[kW], &bias = call.in[kBias], &y = call.out[0];
  std::shared_ptr<DeviceMemory> row;
  if (bias.data) row = row_as(args, bias, y.dtype);
  const std::byte* const bias_data = row ? row->data() : nullptr;
  const auto gemm = store.get({.m = x.shape[0],
                               .n = w.shape[0],
                               .k = w.cols(),
                               .dtype = x.dtype,
                               .y_dtype = y.dtype,
                               .bias = bias_data != nullptr,
                               .gelu = true,
                               .y_stride = y.cols()},
                              pointers_of(call, bias_data, args.workspace));
  return [&call, gemm, row, bias_data, workspace = args.workspace](const LaunchContext& context) {
    const TensorView &front = call.in[kFront], &y = call.out[0];
    if (front.data) {
      const CopyPiece piece = {front.data,      y.data,          y.rows(),
                               front.row_bytes, front.row_bytes, y.row_bytes};
      copy_pieces({&piece, 1}, context);
    }
    gemm->run(context, pointers_of(call, bias_data, workspace));
  };
}

KernelInfo linear_unary_info(const Op& op, TypeList in, TypeList out, const DeviceInfo&) {
  const DType dtype = out[0].dtype;
  const auto function = op.attrs.as<ops::LinearUnaryAttrs>().function;
  if (function != ops::UnaryFunction::gelu_tanh || (dtype != DType::bf16 && dtype != DType::f16) ||
      in[kX].dtype != dtype || in[kW].dtype != dtype) {
    fail(ErrorCode::kUnsupported,
         "linear_unary: {} of {} and {}, wanted are gelu_tanh and bf16 or f16", to_string(function),
         name(in[kX].dtype), name(in[kW].dtype));
  }
  return {"linear_unary.cublaslt", GemmStore::kWorkspaceBytes};
}

BoundKernel bind_norm_rotate(const LaunchArgs& args) {
  return [&call = args.call](const LaunchContext& context) {
    norm_rotate({.x = {call.in[0], call.in[2]},
                 .w = {call.in[1], call.in[3]},
                 .table = call.in[4],
                 .y = {call.out[0], call.out[1]},
                 .attrs = call.attrs<ops::NormRopeTableAttrs>()},
                context);
  };
}

}  // namespace

void add_dense_fusions(KernelTable& table) {
  table.add(ops::kLinearUnary.kind,
            {.info = linear_unary_info,
             .bind = [store = std::make_shared<GemmStore>()](const LaunchArgs& args) {
               return bind_linear_unary(args, *store);
             }});
  table.add(ops::kNormRopeTable.kind, simple_kernel(ops::kNormRopeTable.kind, bind_norm_rotate));
  table.add_fusions(ops::norm_rope_table_fusions());
  if (gemm_available()) table.add_fusions(ops::linear_unary_fusions());
}

}  // namespace braid::cuda
