// Binds segment attention with dual chunks: for each chunk of keys the queries as they meet the
// chunk, then a call over the chunk's keys, with running states from call to call.
#include <algorithm>
#include <memory>

#include "braid/kernels/cuda/bind_dual.h"
#include "braid/kernels/cuda/dual_chunks/chunk_calls.h"
#include "braid/kernels/cuda/dual_chunks/device/meet_segments.h"
#include "braid/kernels/cuda/plain_call.h"
#include "braid/kernels/cuda/sequence_views.h"

namespace braid::cuda {
namespace {

using ops::SegmentAttentionAttrs;
constexpr size_t kQ = SegmentAttentionAttrs::kFirstQ;

// The met queries [B, rows, H, D] of a call.
Shape met_shape(const ChunkCall& chunk, const Shape& state) {
  return {state[0], chunk.met_rows, chunk.attrs.heads, state[3]};
}

// The whole call's inputs, with the met queries behind its other q values.
std::vector<TensorView> inputs_of(const OpCall& call, const ChunkCall& chunk, std::byte* met) {
  std::vector<TensorView> in(call.in.begin(), call.in.end());
  if (chunk.met.empty()) return in;
  const auto place = static_cast<ptrdiff_t>(kQ) + call.attrs<SegmentAttentionAttrs>().num_q;
  in.insert(in.begin() + place,
            make_view(met, call.in[kQ].dtype, met_shape(chunk, call.in[0].shape)));
  return in;
}

MeetSegmentsParams meet_params(const OpCall& call, const ChunkCall& chunk, std::byte* met,
                               std::vector<MetSegment>& segments) {
  segments.clear();
  for (const MetRows& rows : chunk.met) {
    const TensorView& q = call.in[kQ + static_cast<size_t>(rows.q)];
    segments.push_back({.q = at(q, rows.row, rows.head),
                        .stride = strides_of(q),
                        .rows = static_cast<int32_t>(rows.rows),
                        .position = static_cast<int32_t>(rows.position),
                        .met_row = rows.met_row});
  }
  return {.dtype = call.in[kQ].dtype,
          .segments = segments,
          .met = met,
          .met_rows = chunk.met_rows,
          .heads = chunk.attrs.heads,
          .head_dim = call.in[0].shape[3],
          .chunk = chunk.chunk};
}

// A chunk's call, bound.
struct Bound {
  Bound(const LaunchArgs& args, ChunkCall made, const BindPlain& bind)
      : chunk(std::move(made)),
        call(args.call, Attrs::of(chunk.attrs), inputs_of(args.call, chunk, args.workspace)) {
    call.run = bind(call.args(args));
  }
  const ChunkCall chunk;
  PlainCall call;
};

}  // namespace

int64_t dual_segments_bytes(const Op& op, TypeList in) {
  int64_t bytes = 0;
  for (const ChunkCall& chunk : chunk_calls(op.attrs.as<SegmentAttentionAttrs>())) {
    bytes = std::max(bytes, bytes_of(in[kQ].dtype, met_shape(chunk, in[0].shape).elems()));
  }
  return bytes;
}

BoundKernel bind_dual_segments(const LaunchArgs& args, const BindPlain& bind) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<SegmentAttentionAttrs>();
  load_meet_segments(call.in[kQ].dtype, call.in[0].shape[3]);
  auto bound = std::make_shared<std::vector<std::unique_ptr<Bound>>>();
  for (ChunkCall& chunk : chunk_calls(attrs)) {
    bound->push_back(std::make_unique<Bound>(args, std::move(chunk), bind));
  }
  return [&call, &attrs, bound, met = args.workspace, whole = args.whole_batch,
          turns = turns_table(args, attrs.dual->rope, {})](LaunchContext context) {
    std::vector<MetSegment> segments;
    for (const std::unique_ptr<Bound>& b : *bound) {
      MeetSegmentsParams meet = meet_params(call, b->chunk, met, segments);
      meet.sequences = sequences_of(call, call.in[0], whole);
      meet.dual = dual_turns(*attrs.dual, reinterpret_cast<const uint64_t*>(turns->data()));
      meet_segments(meet, context);
      std::ranges::copy(inputs_of(call, b->chunk, met), b->call.in.begin());
      context.pdl = context.pdl || !b->chunk.met.empty();
      b->call.run(context);
      context.pdl = true;
    }
  };
}

}  // namespace braid::cuda
