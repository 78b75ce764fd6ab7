#pragma once

#include <utility>
#include <vector>

#include "braid/backend/cuda/kernel_table.h"

namespace braid::cuda {

// A call of an op inside the kernel of a larger call. Bound launches keep its address: it never
// moves.
struct PlainCall {
  PlainCall(const OpCall& whole, Attrs attrs, std::vector<TensorView> inputs,
            std::vector<TensorView> outputs = {})
      : op{.def = whole.op->def, .attrs = std::move(attrs)},
        in(std::move(inputs)),
        out(std::move(outputs)),
        call{&op, in, out, whole.axis, whole.part} {}
  PlainCall(const PlainCall&) = delete;
  PlainCall& operator=(const PlainCall&) = delete;

  // The launch of `whole`, of this call.
  LaunchArgs args(const LaunchArgs& whole) const {
    return {.call = call,
            .part = whole.part,
            .device = whole.device,
            .stream = whole.stream,
            .arena = whole.arena,
            .whole_batch = whole.whole_batch,
            .own_rows = whole.own_rows,
            .beside = whole.beside,
            .by_stream = whole.by_stream};
  }

  Op op;
  std::vector<TensorView> in, out;  // data may move between launches
  OpCall call;
  BoundKernel run;
};

}  // namespace braid::cuda
