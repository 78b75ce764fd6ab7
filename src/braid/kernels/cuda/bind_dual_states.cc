// Binds states of attention with dual chunks over a rank's keys: a query for each chunk, states of
// all these, and a merge of each query's states.
#include <algorithm>
#include <memory>

#include "braid/kernels/cuda/bind_dual.h"
#include "braid/kernels/cuda/decode/desc.h"
#include "braid/kernels/cuda/decode/device/states.h"
#include "braid/kernels/cuda/dual_chunks/device/meet_held.h"
#include "braid/kernels/cuda/dual_chunks/workspace.h"
#include "braid/kernels/cuda/plain_call.h"
#include "braid/ops/attention_state.h"

namespace braid::cuda {
namespace {

using ops::AttentionStateAttrs;
enum Input : size_t { kQ, kCacheK, kCacheV, kSlots, kRows, kBegin, kEnd };

// Chunks of a call, as many queries as the decode kernel takes, and places for chunks in all calls.
struct Places {
  Places(const AttentionStateAttrs& attrs, const Shape& q)
      : of_call(
            std::clamp<int64_t>(kMaxDecodeSequences / std::max<int64_t>(q[1], 1), 1, attrs.chunks)),
        all(round_up(attrs.chunks, of_call)) {}
  int64_t of_call, all;
};

StatesWork work_of(const Places& places, DType dtype, const Shape& q) {
  return {dtype, places.all * q[1], q[2], q[3]};
}

// The call for the queries that met chunks from `first` on.
std::unique_ptr<PlainCall> call_of(const LaunchArgs& args, const Places& places, int64_t first) {
  const OpCall& whole = args.call;
  const auto& attrs = whole.attrs<AttentionStateAttrs>();
  const TensorView& q = whole.in[kQ];
  const int64_t T = q.shape[1], heads = q.shape[2], D = q.shape[3], queries = places.of_call * T;
  const StatesWork work = work_of(places, q.dtype, q.shape);
  const auto view = [&](int64_t offset, DType dtype, const Shape& shape, int64_t each) {
    return make_view(args.workspace + offset + bytes_of(dtype, first * T * each), dtype, shape);
  };
  std::vector<TensorView> in(whole.in.begin(), whole.in.end());
  in[kQ] = view(work.met, q.dtype, {1, queries, heads, D}, heads * D);
  in[kRows] = view(work.rows, DType::i32, {queries}, 1);
  in[kBegin] = view(work.begin, DType::i32, {1, queries}, 1);
  in[kEnd] = view(work.end, DType::i32, {queries}, 1);
  AttentionStateAttrs plain = {.attention = attrs.attention};
  plain.attention.dual.reset();
  return std::make_unique<PlainCall>(
      whole, Attrs::of(plain), std::move(in),
      std::vector{view(work.states, DType::f32, {1, queries, heads, D + 2}, heads * (D + 2))});
}

}  // namespace

int64_t dual_states_bytes(const Op& op, TypeList in) {
  const Places places(op.attrs.as<AttentionStateAttrs>(), in[kQ].shape);
  return work_of(places, in[kQ].dtype, in[kQ].shape).parts.bytes();
}

BoundKernel bind_dual_states(const LaunchArgs& args, const BindPlain& bind) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<AttentionStateAttrs>();
  const TensorView& q = call.in[kQ];
  const Places places(attrs, q.shape);
  load_meet_held(q.dtype, q.shape[3]);
  auto calls = std::make_shared<std::vector<std::unique_ptr<PlainCall>>>();
  for (int64_t first = 0; first < places.all; first += places.of_call) {
    calls->push_back(call_of(args, places, first));
    calls->back()->run = bind(calls->back()->args(args));
  }
  return [&call, &attrs, places, calls, work = work_of(places, q.dtype, q.shape),
          workspace = args.workspace,
          turns = turns_table(args, attrs.attention.dual->rope, {})](const LaunchContext& context) {
    const TensorView& q = call.in[kQ];
    meet_held({.q = q,
               .rows = call.in[kRows].as<const int32_t>(),
               .begin = call.in[kBegin].row_as<const int32_t>(attrs.window_row),
               .end = call.in[kEnd].as<const int32_t>(),
               .chunks = attrs.chunks,
               .met_chunks = places.all,
               .met = workspace + work.met,
               .met_rows = ints_at(workspace, work.rows),
               .met_begin = ints_at(workspace, work.begin),
               .met_end = ints_at(workspace, work.end),
               .dual = dual_turns(*attrs.attention.dual,
                                  reinterpret_cast<const uint64_t*>(turns->data()))},
              context);
    const LaunchContext next{context.stream, true};
    for (const std::unique_ptr<PlainCall>& part : *calls) {
      for (const size_t input : {kCacheK, kCacheV, kSlots}) part->in[input] = call.in[input];
      part->run(next);
    }
    const int64_t T = q.shape[1], heads = q.shape[2], D = q.shape[3];
    merge_states({.states = make_view(workspace + work.states, DType::f32,
                                      {1, places.all * T, heads, D + 2}),
                  .out = make_view(call.out[0].data, DType::f32, {T, heads * (D + 2)}),
                  .parts = static_cast<int>(places.all),
                  .finish = false},
                 next);
  };
}

}  // namespace braid::cuda
