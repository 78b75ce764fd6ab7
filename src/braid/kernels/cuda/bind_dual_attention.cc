// Binds attention with dual chunks: for each chunk of keys the queries as they meet the chunk, then
// a call of an attention kernel that carries states; a few tokens have a state for each chunk.
#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/kernels/cuda/bind_attention.h"
#include "braid/kernels/cuda/decode/device/paged_states.h"
#include "braid/kernels/cuda/decode/device/plain.h"
#include "braid/kernels/cuda/decode/device/query_spans.h"
#include "braid/kernels/cuda/decode/device/states.h"
#include "braid/kernels/cuda/dual_chunks/device/meet_chunks.h"
#include "braid/kernels/cuda/dual_chunks/workspace.h"

namespace braid::cuda {
namespace {

using namespace attention_input;
using ops::AttentionAttrs;

enum class Choice : uint8_t { segments, states, plain };

// Chunks of the longest sequence.
int chunks_of(const AttentionAttrs& attrs, const Shape& cache, const Shape& table) {
  return static_cast<int>(ceil_div(table[1] * cache[1], attrs.dual->chunk));
}

// A query for each token and chunk.
DecodeDesc states_desc(const AttentionAttrs& attrs, TypeList in, const ValueType& out) {
  DecodeDesc desc = decode_desc(attrs, in, out);
  desc.out_dtype = DType::f32;
  const int64_t queries =
      int64_t{desc.max_tokens} * chunks_of(attrs, in[kCacheK].shape, in[kPageTable].shape);
  desc.max_tokens = desc.max_sequences =
      static_cast<int>(std::min<int64_t>(queries, kMaxDecodeSequences + 1));  // more: refused
  return desc;
}

Choice choose_dual(const AttentionAttrs& attrs, TypeList in, const ValueType& out,
                   const DeviceInfo& device) {
  const bool states = supported(
      [&] { choose_paged_states(states_desc(attrs, in, out), decode_device_of(device)); });
  if (states && few_tokens_each(in[kQ].shape[0], in[kPageTable].shape[0])) return Choice::states;
  // Chunks of segments begin with a page.
  if (attrs.dual->chunk % in[kCacheK].shape[1] == 0 && takes_segments(attrs, in, out)) {
    return Choice::segments;
  }
  return states ? Choice::states : Choice::plain;
}

struct SegmentsWork {
  SegmentsWork(const AttentionAttrs& attrs, const ValueType& q, const Shape& table) {
    const int64_t rows = q.shape[0] * (q.shape[1] / attrs.head_dim);
    spans = parts.add((3 * table[0] + 1) * 4);
    lengths = parts.add(table[0] * 4);
    met = parts.add(bytes_of(q.dtype, q.shape[0] * q.shape[1]));
    sums = parts.add(rows * attrs.head_dim * 4);
    l = parts.add(rows * 4);
    m = parts.add(rows * 4);
  }
  WorkspaceParts parts;
  int64_t spans, lengths, met;
  int64_t sums, l, m;  // carried states: f32 [T, Hq, D], [Hq, T], [Hq, T]
};

// A query for each token and chunk.
StatesWork states_work(const AttentionAttrs& attrs, const Shape& q, DType dtype, int chunks) {
  return {dtype, q[0] * chunks, q[1] / attrs.head_dim, attrs.head_dim};
}

MeetParams meet_params(const OpCall& call, const int64_t* sequences, const uint64_t* turns) {
  const auto& attrs = call.attrs<AttentionAttrs>();
  return {.q = call.in[kQ],
          .head_dim = attrs.head_dim,
          .q_start = call.in[kQStart].as<const int32_t>(),
          .kv_len = call.in[kKvLen].as<const int32_t>(),
          .sequences = sequences,
          .max_sequences = static_cast<int>(call.in[kPageTable].shape[0]),
          .dual = dual_turns(*attrs.dual, turns)};
}

// Attention of the queries that met chunk `n` to the chunk's keys.
PagedCall chunk_call(const OpCall& call, const SegmentsWork& work, std::byte* workspace, int n,
                     int chunks) {
  const auto& attrs = call.attrs<AttentionAttrs>();
  const int64_t first_token = call.part->begin.token;
  const TensorView& q = call.in[kQ];
  PagedOperands operands = paged_operands(call);
  operands.q = from_first_token(call, make_view(workspace + work.met, q.dtype, q.shape));
  operands.spans = ints_at(workspace, work.spans);
  PagedCall paged = make_paged_call(attrs, operands);
  paged.desc.load_state = n > 0;
  paged.desc.finalize = n + 1 == chunks;
  const auto floats = [&](int64_t offset, int64_t first) {
    return reinterpret_cast<float*>(workspace + offset) - first;
  };
  paged.q.state_o = floats(work.sums, first_token * q.shape[1]);
  paged.q.state_l = floats(work.l, first_token);
  paged.q.state_m = floats(work.m, first_token);
  paged.q.state_stride = {0, q.shape[1], attrs.head_dim};
  paged.q.row_stride = {0, 1, q.shape[0]};
  const int64_t first_key = n * attrs.dual->chunk;
  KvTensor& kv = paged.kv;
  kv.page_table += first_key / paged.desc.page_size;
  kv.lengths = ints_at(workspace, work.lengths);
  kv.length = static_cast<int32_t>(std::min(kv.length - first_key, attrs.dual->chunk));
  kv.offset = static_cast<int32_t>(first_key);
  return paged;
}

// The config is for queries that see the whole chunk.
AttentionConfig choose_for(PagedCall call, const DeviceInfo& device) {
  call.q.offset = call.kv.offset + call.kv.length;
  return choose(call.desc, call.params(), attention_device(device));
}

BoundKernel bind_segments(const LaunchArgs& args, Scratch& scratch) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<AttentionAttrs>();
  const int chunks = chunks_of(attrs, call.in[kCacheK].shape, call.in[kPageTable].shape);
  const SegmentsWork work(attrs, {call.in[kQ].dtype, call.in[kQ].shape}, call.in[kPageTable].shape);
  std::byte* const workspace = args.workspace;
  std::byte* const counters = scratch.get(args, kAttentionWorkspaceBytes);
  std::vector<AttentionConfig> configs;
  for (int n = 0; n < chunks; ++n) {
    configs.push_back(choose_for(chunk_call(call, work, workspace, n, chunks), args.device));
  }
  return
      [&call, work, workspace, counters, configs, turns = turns_table(args, attrs.dual->rope, {}),
       sequences = args.live(BatchAxis::sequence),
       num_sms = args.device.num_sms](const LaunchContext& context) {
        MeetParams meet =
            meet_params(call, sequences, reinterpret_cast<const uint64_t*>(turns->data()));
        query_spans(meet.q_start, meet.kv_len, sequences, meet.max_sequences,
                    ints_at(workspace, work.spans), nullptr, context);
        meet.met = workspace + work.met;
        meet.lengths = ints_at(workspace, work.lengths);
        const auto chunks = static_cast<int>(configs.size());
        for (int n = 0; n < chunks; ++n) {
          meet.first_chunk = n;
          meet_chunks(meet, {context.stream, true});
          const PagedCall paged = chunk_call(call, work, workspace, n, chunks);
          attention(paged.desc, paged.params(), configs[n], counters, context.stream, num_sms);
        }
      };
}

BoundKernel bind_states(const LaunchArgs& args, Scratch& scratch) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<AttentionAttrs>();
  const int chunks = chunks_of(attrs, call.in[kCacheK].shape, call.in[kPageTable].shape);
  const StatesWork work = states_work(attrs, call.in[kQ].shape, call.in[kQ].dtype, chunks);
  const DecodeDesc desc = states_desc(attrs, types_of(call.in), types_of(call.out)[0]);
  const DecodeConfig config = choose_paged_states(desc, decode_device_of(args.device));
  prepare_paged_states(desc);
  return
      [&call, work, desc, config, chunks, workspace = args.workspace,
       counters = scratch.get(args, config.workspace_bytes),
       turns = turns_table(args, attrs.dual->rope, {}), sequences = args.live(BatchAxis::sequence),
       tokens = args.live(BatchAxis::token)](const LaunchContext& context) {
        const LaunchContext next{context.stream, true};
        MeetParams meet =
            meet_params(call, sequences, reinterpret_cast<const uint64_t*>(turns->data()));
        meet.met = workspace + work.met;
        meet.chunks = chunks;
        meet.rows = ints_at(workspace, work.rows);
        meet.begin = ints_at(workspace, work.begin);
        meet.end = ints_at(workspace, work.end);
        meet_chunks(meet, context);
        paged_states(desc,
                     {.q = meet.met,
                      .k_cache = call.in[kCacheK].data,
                      .v_cache = call.in[kCacheV].data,
                      .page_table = call.in[kPageTable].as<const int32_t>(),
                      .rows = meet.rows,
                      .begin = meet.begin,
                      .end = meet.end,
                      .out = reinterpret_cast<float*>(workspace + work.states),
                      .workspace = counters},
                     config, next);
        const int64_t D = meet.head_dim, queries = call.in[kQ].shape[0] * chunks;
        merge_states({.states = make_view(workspace + work.states, DType::f32,
                                          {1, queries, call.in[kQ].shape[1] / D, D + 2}),
                      .out = call.out[0],
                      .queries = tokens,
                      .parts = chunks},
                     next);
      };
}

}  // namespace

KernelInfo dual_attention_info(const AttentionAttrs& attrs, TypeList in, const ValueType& out,
                               const DeviceInfo& device) {
  const Shape &cache = in[kCacheK].shape, &table = in[kPageTable].shape;
  switch (choose_dual(attrs, in, out, device)) {
    case Choice::segments:
      return {"attention.chunks", SegmentsWork(attrs, in[kQ], table).parts.bytes()};
    case Choice::states:
      return {"attention.chunk_states",
              states_work(attrs, in[kQ].shape, in[kQ].dtype, chunks_of(attrs, cache, table))
                  .parts.bytes()};
    case Choice::plain:
      break;
  }
  return {"attention.plain", 0};
}

BoundKernel bind_dual_attention(const LaunchArgs& args, Scratch& segments, Scratch& decode) {
  switch (choose_dual(args.call.attrs<AttentionAttrs>(), types_of(args.call.in),
                      types_of(args.call.out)[0], args.device)) {
    case Choice::segments:
      return bind_segments(args, segments);
    case Choice::states:
      return bind_states(args, decode);
    case Choice::plain:
      break;
  }
  return bind_plain_attention(args,
                              turns_table(args, args.call.attrs<AttentionAttrs>().dual->rope, {}));
}

}  // namespace braid::cuda
