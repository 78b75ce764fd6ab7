// Binds convolutions and group norms.
#include <map>
#include <mutex>
#include <tuple>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/image/device/conv2d.h"
#include "braid/kernels/cuda/image/device/group_norm.h"

namespace braid::cuda {
namespace {

ConvDesc desc_of(const OpCall& call) {
  return conv_desc(call.attrs<ops::Conv2dAttrs>(), {call.in[0].dtype, call.in[0].shape},
                   {call.in[1].dtype, call.in[1].shape});
}

// Weights in the order in which the kernels sum, made when a launch first asks for them. Plans of
// all sizes share them.
class PackedWeights {
 public:
  const void* get(const LaunchArgs& args) {
    const TensorView& w = args.call.in[1];
    const DType dtype = args.call.in[0].dtype;
    auto& memory = memory_[{w.data, dtype}];
    if (!memory) {
      memory = std::make_unique<CudaMemory>(args.device.id, bytes_of(dtype, w.shape.elems()));
      pack_conv_weights(w, memory->data(), dtype, {});
      check_cuda(cudaStreamSynchronize(nullptr), "weights of a convolution");
    }
    return memory->data();
  }

 private:
  std::map<std::pair<const void*, DType>, std::unique_ptr<DeviceMemory>> memory_;
};

BoundKernel bind_conv2d(const LaunchArgs& args, PackedWeights& weights) {
  const ConvConfig config = choose(desc_of(args.call));
  load_conv2d(args.call.in[0].dtype, config);
  return [&call = args.call, config, w = weights.get(args)](const LaunchContext& context) {
    conv2d({.x = call.in[0],
            .w = w,
            .kernel_height = call.in[1].shape[2],
            .kernel_width = call.in[1].shape[3],
            .bias = call.in[2],
            .residual = call.in[3],
            .y = call.out[0],
            .attrs = call.attrs<ops::Conv2dAttrs>()},
           config, context);
  };
}

BoundKernel bind_group_norm(const LaunchArgs& args) {
  return [&call = args.call, workspace = args.workspace](const LaunchContext& context) {
    group_norm({.x = call.in[0],
                .w = call.in[1],
                .b = call.in[2],
                .y = call.out[0],
                .workspace = workspace,
                .attrs = call.attrs<ops::GroupNormAttrs>()},
               context);
  };
}

}  // namespace

void add_image_kernels(KernelTable& table) {
  table.add(ops::kConv2d.kind,
            {.info =
                 [](const Op& op, TypeList in, TypeList, const DeviceInfo&) {
                   const ConvDesc desc = conv_desc(op.attrs.as<ops::Conv2dAttrs>(), in[0], in[1]);
                   return KernelInfo{fmt::format("conv2d.{}", to_string(choose(desc))), 0};
                 },
             .bind = [weights = std::make_shared<PackedWeights>()](
                         const LaunchArgs& args) { return bind_conv2d(args, *weights); }});
  table.add(ops::kGroupNorm.kind,
            {.info =
                 [](const Op& op, TypeList in, TypeList, const DeviceInfo&) {
                   const auto& a = op.attrs.as<ops::GroupNormAttrs>();
                   return KernelInfo{"group_norm.cuda", group_norm_workspace(a, in[0].shape)};
                 },
             .bind = bind_group_norm});
}

}  // namespace braid::cuda
