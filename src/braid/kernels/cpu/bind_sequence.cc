// Binds the ops between a shard of tokens and a sequence: reshapes, KV rows, and picked rows.
#include <cstring>

#include "braid/kernels/cpu/bind.h"
#include "braid/ops/ordered_queries.h"
#include "braid/ops/paid_keys.h"
#include "braid/ops/sequence.h"
#include "braid/ops/thin_keys.h"

namespace braid::cpu {
namespace {

// Live rows lie alike in both views: tokens of a shard, and rows in the shard's sequence.
BoundKernel bind_reshape(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const TensorView& x = call.in[0];
  const int64_t row_bytes = x.bytes() / (x.shape.rank() == 4 ? x.shape[1] : x.shape[0]);
  return [&call, row_bytes](const Team& team) {
    const Range share = team.share(call.extents().shard * row_bytes);
    std::memcpy(call.out[0].data + share.begin, call.in[0].data + share.begin, share.size());
  };
}

// A token's K or V for all heads, between the cache's dtype and another.
void copy_kv(const TensorView& from, int64_t i, const TensorView& to, int64_t j) {
  const int64_t heads = from.shape[2], n = heads * from.shape[3];
  const std::byte* src = from.row(i * heads);
  std::byte* dst = to.row(j * heads);
  if (from.dtype == to.dtype) {
    std::memcpy(dst, src, static_cast<size_t>(bytes_of(from.dtype, n)));
  } else if (to.dtype == DType::f32) {
    dequantize_row(from.dtype, src, reinterpret_cast<float*>(dst), n);
  } else {
    quantize_row(to.dtype, reinterpret_cast<const float*>(src), dst, n);
  }
}

BoundKernel bind_kv_read(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  return [&call](const Team& team) {
    const auto* slots = call.in[0].as<const int32_t>();
    const Range share = team.share(call.in[0].shape[0]);
    for (int64_t i = share.begin; i < share.end; ++i) {
      if (slots[i] < 0) continue;
      for (size_t v : {0u, 1u}) copy_kv(call.in[1 + v], slots[i], call.out[v], i);
    }
  };
}

BoundKernel bind_kv_write(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  return [&call](const Team& team) {
    const auto* slots = call.in[2].as<const int32_t>();
    const Range share = team.share(call.in[2].shape[0]);
    for (int64_t i = share.begin; i < share.end; ++i) {
      if (slots[i] < 0) continue;
      for (size_t v : {0u, 1u}) copy_kv(call.in[v], i, call.in[3 + v], slots[i]);
    }
  };
}

BoundKernel bind_pick_rows(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const auto bytes = static_cast<size_t>(bytes_of(call.in[0].dtype, call.in[0].cols()));
  return [&call, bytes](const Team& team) {
    const auto* rows = call.in[1].as<const int32_t>();
    const int64_t first = call.part->begin.of(call.axis, 0);
    const Range share = team.share(call.extents().row);
    for (int64_t i = share.begin; i < share.end; ++i) {
      if (rows[i] < 0) {
        std::memset(call.out[0].row(i), 0, bytes);
      } else {
        std::memcpy(call.out[0].row(i), call.in[0].row(rows[i] - first), bytes);
      }
    }
  };
}

// In the cache's dtype or f32.
Kernel kv_kernel(const OpDef& def, size_t cache, Isa isa,
                 BoundKernel (*bind)(const LaunchArgs& args, Isa isa)) {
  Kernel kernel = simple_kernel(def, isa, bind);
  kernel.info = [&def, cache, isa](const Op&, TypeList in, TypeList out, int) {
    const DType rows = out.empty() ? in[0].dtype : out[0].dtype;
    if (rows != in[cache].dtype && rows != DType::f32) {
      fail(ErrorCode::kUnsupported, "{}: {} rows of a cache in {}", def.kind, name(rows),
           name(in[cache].dtype));
    }
    return KernelInfo{fmt::format("{}.{}", def.kind, name(isa)), 0};
  };
  return kernel;
}

// By the op's own rule; heads and parts are divided over the team.
BoundKernel bind_thin(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const int64_t heads = call.in[1].shape[2];
  const auto parts = std::ssize(call.attrs<ops::ThinKeysAttrs>().parts);
  return [&call, heads, parts](const Team& team) {
    const Range mine = team.share(heads * parts);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      ops::thin_part(call, i / heads, i % heads);
    }
  };
}

}  // namespace

void add_sequence_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kToSequence.kind, simple_kernel(ops::kToSequence, cap, bind_reshape));
  table.add(ops::kToTokens.kind, simple_kernel(ops::kToTokens, cap, bind_reshape));
  table.add(ops::kPickRows.kind, simple_kernel(ops::kPickRows, cap, bind_pick_rows));
  table.add(ops::kKvRead.kind, kv_kernel(ops::kKvRead, 1, cap, bind_kv_read));
  table.add(ops::kKvWrite.kind, kv_kernel(ops::kKvWrite, 3, cap, bind_kv_write));
  table.add(ops::kThinKeys.kind, simple_kernel(ops::kThinKeys, cap, bind_thin));
  for (const OpDef* def :
       {&ops::kPaidKeys, &ops::kKeyScores, &ops::kOrderQueries, &ops::kRestoreStates}) {
    add_reference_kernel(table, *def);
  }
}

}  // namespace braid::cpu
