// Binds the ops of networks without a KV cache.
#include <algorithm>
#include <cstring>

#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/pointwise/layer_norm.h"
#include "braid/kernels/cpu/pointwise/unary.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/concat.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/join_sequence.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/rope_table.h"
#include "braid/ops/timestep.h"
#include "braid/ops/unary.h"

namespace braid::cpu {

Kernel dense_attention_kernel(Isa isa);  // bind_dense_attention.cc

namespace {

// Begin of a modulation column; null if the op names none.
const float* column_of(const TensorView& modulation, int64_t column) {
  return column == ops::kNoColumn ? nullptr : modulation.as<const float>() + column;
}

// Rows of x per row of the modulation.
int64_t rows_per_sequence(const TensorView& x, const TensorView& modulation) {
  return modulation.data == nullptr ? 1 : std::max<int64_t>(1, x.shape[0] / modulation.shape[0]);
}

BoundKernel bind_layer_norm(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::LayerNormAttrs>();
  const auto w = std::make_shared<std::vector<float>>(widen(call.in[1]));
  const auto b = std::make_shared<std::vector<float>>(widen(call.in[2]));
  const LayerNormParams p{.w = w->empty() ? nullptr : w->data(),
                          .b = b->empty() ? nullptr : b->data(),
                          .cols = call.in[0].cols(),
                          .group = a.group,
                          .rows_per_sequence = rows_per_sequence(call.in[0], call.in[3]),
                          .modulation_stride = call.in[3].data == nullptr ? 0 : call.in[3].cols(),
                          .eps = a.eps};
  return [bound = p, w, b, &call, &a, isa](const Team& team) {
    auto p = bound;
    p.x = call.in[0].as<const float>();
    p.y = call.out[0].as<float>();
    p.scale = column_of(call.in[3], a.scale_column);
    p.shift = column_of(call.in[3], a.shift_column);
    p.rows = call.rows();
    layer_norm(p, team, isa);
  };
}

BoundKernel bind_gated_add(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const int64_t column = call.attrs<ops::GatedAddAttrs>().gate_column;
  const GatedAddParams p{.cols = call.in[0].cols(),
                         .rows_per_sequence = rows_per_sequence(call.in[0], call.in[2]),
                         .modulation_stride = call.in[2].cols()};
  return [bound = p, &call, column, isa](const Team& team) {
    auto p = bound;
    p.a = call.in[0].as<const float>();
    p.b = call.in[1].as<const float>();
    p.gate = column_of(call.in[2], column);
    p.y = call.out[0].as<float>();
    p.rows = call.rows();
    gated_add(p, team, isa);
  };
}

BoundKernel bind_unary(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto function = call.attrs<ops::UnaryAttrs>().function;
  const auto kernel = function == ops::UnaryFunction::silu        ? silu
                      : function == ops::UnaryFunction::gelu_tanh ? gelu_tanh
                                                                  : quick_gelu;
  return [&call, isa, kernel](const Team& team) {
    kernel({.x = call.in[0].as<const float>(),
            .y = call.out[0].as<float>(),
            .n = call.rows() * call.in[0].cols()},
           team, isa);
  };
}

// Each sequence's rows take the table's rows; the compiler vectorizes the loops.
BoundKernel bind_rope_table(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    const auto& a = call.attrs<ops::RopeTableAttrs>();
    const TensorView &x = call.in[0], &table = call.in[1], &y = call.out[0];
    const int64_t L = x.shape[0] / a.batch, C = x.cols(), rotary = table.cols();
    const Range rows = team.share(x.shape[0]);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const float* from = x.row_as<const float>(t);
      float* to = y.row_as<float>(t);
      const int64_t at = (t % L) - a.first;
      const bool rotated = at >= 0 && at < table.shape[0];
      if (!rotated || rotary < a.head_dim) std::copy(from, from + C, to);
      if (!rotated) continue;
      const float* angle = table.row_as<const float>(at);
      for (int64_t head = 0; head < C; head += a.head_dim) {
        for (int64_t i = 0; i < rotary; i += 2) {
          const float even = from[head + i], odd = from[head + i + 1];
          to[head + i] = even * angle[i] - odd * angle[i + 1];
          to[head + i + 1] = odd * angle[i] + even * angle[i + 1];
        }
      }
    }
  };
}

void copy_rows(const TensorView& from, int64_t begin, const TensorView& to, int64_t at,
               Range share) {
  std::memcpy(to.row(at + share.begin), from.row(begin + share.begin),
              share.size() * from.row_bytes);
}

BoundKernel bind_concat_rows(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    const int64_t batch = call.attrs<ops::SequenceRowsAttrs>().batch;
    int64_t at = 0;
    for (int64_t b = 0; b < batch; ++b) {
      for (const TensorView& part : call.in) {
        const int64_t L = part.shape[0] / batch;
        copy_rows(part, b * L, call.out[0], at, team.share(L));
        at += L;
      }
    }
  };
}

BoundKernel bind_take_rows(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    const auto& a = call.attrs<ops::TakeRowsAttrs>();
    const int64_t L = call.in[0].shape[0] / a.batch;
    for (int64_t b = 0; b < a.batch; ++b) {
      copy_rows(call.in[0], (b * L) + a.begin, call.out[0], b * a.rows, team.share(a.rows));
    }
  };
}

BoundKernel bind_concat_columns(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    const Range rows = team.share(call.rows());
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      std::byte* to = call.out[0].row(t);
      for (const TensorView& part : call.in) {
        std::memcpy(to, part.row(t), part.row_bytes);
        to += part.row_bytes;
      }
    }
  };
}

// The bytes of `views`, one after another, and a value with room for all: each thread copies a
// share of the bytes.
template <class F>
void for_shares(std::span<const TensorView> views, const Team& team, F&& copy) {
  int64_t at = 0;
  for (const TensorView& view : views) {
    const Range share = team.share(view.bytes());
    copy(view.data + share.begin, at + share.begin, share.size());
    at += view.bytes();
  }
}

BoundKernel bind_join_sequence(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    for_shares(call.in, team, [&](const std::byte* part, int64_t at, size_t bytes) {
      std::byte* const to = call.out[0].data + at;
      if (to != part) std::memcpy(to, part, bytes);
    });
  };
}

BoundKernel bind_cut_sequence(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    for_shares(call.out, team, [&](std::byte* part, int64_t at, size_t bytes) {
      const std::byte* const from = call.in[0].data + at;
      if (from != part) std::memcpy(part, from, bytes);
    });
  };
}

}  // namespace

void add_dense_kernels(KernelTable& table, Isa cap) {
  const auto add = [&](const OpDef& def, BoundKernel (*bind)(const LaunchArgs&, Isa)) {
    table.add(def.kind, simple_kernel(def, cap, bind));
  };
  table.add(ops::kDenseAttention.kind, dense_attention_kernel(cap));
  add(ops::kLayerNorm, bind_layer_norm);
  add(ops::kGatedAdd, bind_gated_add);
  add(ops::kUnary, bind_unary);
  add(ops::kRopeTable, bind_rope_table);
  add(ops::kConcatRows, bind_concat_rows);
  add(ops::kTakeRows, bind_take_rows);
  add(ops::kConcatColumns, bind_concat_columns);
  add(ops::kJoinSequence, bind_join_sequence);
  add(ops::kReshapeRows, bind_join_sequence);  // of a single part
  add(ops::kCutSequence, bind_cut_sequence);
  add_reference_kernel(table, ops::kTimestepEmbedding);  // a few values for each image and step
}

}  // namespace braid::cpu
