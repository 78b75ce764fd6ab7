#include "braid/ops/ordered_queries.h"

#include <cstring>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

void check_order(std::string_view op, const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<OrderedQueriesAttrs>();
  const ValueType &x = in[0], &order = in.back();
  require_rank(op, "q or o", x, 4);
  require_dtype(op, "order", order, DType::i32);
  require_rank(op, "order", order, 4);
  require_dim(op, "order", order, 2, x.shape[2] / a.group);
  for (const OrderedPart& p : a.parts) {
    BRAID_CHECK(p.row >= 0 && p.row + p.rows <= std::min(x.shape[1], order.shape[1]));
  }
}

std::vector<ValueType> infer_order(const Attrs& attrs, TypeList in) {
  check_order("order_queries", attrs, in);
  return {in[0]};
}

std::vector<ValueType> infer_restore(const Attrs& attrs, TypeList in) {
  check_order("restore_states", attrs, in);
  for (size_t i : {1u, 2u}) {
    require_rank("restore_states", "l or m", in[i], 3);
    require_dim("restore_states", "l or m", in[i], 1, in[0].shape[1]);
  }
  return {in[0], in[1], in[2]};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 0);
}

ShardRule shard_order(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 1);
}
ShardRule shard_restore(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 3);
}

// Calls f(row in order, own row); both are rows in the heads' q.
template <class F>
void for_each_row(const OpCall& call, const F& f) {
  const auto& a = call.attrs<OrderedQueriesAttrs>();
  const TensorView& order = call.in.back();
  const int64_t heads = call.in[0].shape[2], kv_heads = order.shape[2];
  for (const OrderedPart& p : a.parts) {
    for (int64_t i = 0; i < p.rows; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        const int32_t own = order.as<const int32_t>()[(p.row + i) * kv_heads + h / a.group];
        f((p.row + i) * heads + h, (p.row + own) * heads + h);
      }
    }
  }
}

void order_queries(const OpCall& call) {
  const TensorView& q = call.in[0];
  const auto bytes = static_cast<size_t>(bytes_of(q.dtype, q.shape[3]));
  for_each_row(call, [&](int64_t ordered, int64_t own) {
    std::memcpy(call.out[0].row(ordered), q.row(own), bytes);
  });
}

void restore_states(const OpCall& call) {
  const size_t bytes = bytes_of(DType::f32, call.in[0].shape[3]);
  for_each_row(call, [&](int64_t ordered, int64_t own) {
    std::memcpy(call.out[0].row(own), call.in[0].row(ordered), bytes);
    for (size_t i : {1u, 2u}) {
      call.out[i].as<float>()[own] = call.in[i].as<const float>()[ordered];
    }
  });
}

}  // namespace

const OpDef kOrderQueries = {.kind = "order_queries",
                             .infer = infer_order,
                             .mutated_inputs = {},
                             .cost = cost,
                             .shard = shard_order,
                             .reference = order_queries};

const OpDef kRestoreStates = {.kind = "restore_states",
                              .infer = infer_restore,
                              .mutated_inputs = {},
                              .cost = cost,
                              .shard = shard_restore,
                              .reference = restore_states};

}  // namespace braid::ops
