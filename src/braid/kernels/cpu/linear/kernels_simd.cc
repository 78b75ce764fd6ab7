#include "braid/kernels/cpu/linear/isa_kernels.h"

namespace braid::cpu::BRAID_ISA {
namespace {

int64_t linear_stream_items(const RunArgs& args) {
  int64_t items = 0;
  for (int w = 0; w < args.num_weights; ++w) {
    const int rows = linear_stream_rows(args, w);
    items += (args.weights[w].N + rows - 1) / rows;
    if (args.gate != Activation::none) break;
  }
  return items;
}

}  // namespace

const linear_detail::Kernels& linear_kernels() {
  static constexpr linear_detail::Kernels kKernels = {
      .stream_items = linear_stream_items,
      .panel_rows = kPanelRows,
      .tile =
          [](DType dtype) {
            return linear_detail::kind_of(dtype) == Kind::real ? kRealTile : kCodeTile;
          },
      .pack = linear_pack,
      .run_stream = linear_run_stream,
      .run_panels = linear_run_panels,
  };
  return kKernels;
}

}  // namespace braid::cpu::BRAID_ISA
