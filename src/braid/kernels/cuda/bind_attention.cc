// Binds attention: the decode kernel for few tokens, segment attention for many.
#include <algorithm>
#include <array>

#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/kernels/cuda/attention/paged_call.h"
#include "braid/kernels/cuda/bind_attention.h"
#include "braid/kernels/cuda/decode/device/launch.h"
#include "braid/kernels/cuda/decode/device/plain.h"
#include "braid/kernels/cuda/decode/device/query_spans.h"
#include "braid/ops/attention.h"

namespace braid::cuda {
using namespace attention_input;

TensorView from_first_token(const OpCall& call, TensorView view) {
  const int64_t begin = call.part->begin.token;
  view.data -= begin * view.row_bytes;
  view.shape[0] += begin;
  return view;
}

PagedOperands paged_operands(const OpCall& call) {
  return {.q = from_first_token(call, call.in[kQ]),
          .k_cache = call.in[kCacheK],
          .v_cache = call.in[kCacheV],
          .page_table = call.in[kPageTable],
          .out = from_first_token(call, call.out[0])};
}

DecodeDesc decode_desc(const ops::AttentionAttrs& attrs, TypeList in, const ValueType& out) {
  const ValueType &q = in[kQ], &cache = in[kCacheK], &table = in[kPageTable];
  return {.attrs = attrs,
          .q_dtype = q.dtype,
          .cache_dtype = cache.dtype,
          .out_dtype = out.dtype,
          .num_q_heads = static_cast<int>(q.shape[1] / attrs.head_dim),
          .num_kv_heads = static_cast<int>(cache.shape[2]),
          .page_size = static_cast<int>(cache.shape[1]),
          .table_stride = static_cast<int>(table.shape[1]),
          .max_sequences = static_cast<int>(table.shape[0]),
          .max_tokens = static_cast<int>(q.shape[0])};
}

bool takes_segments(const ops::AttentionAttrs& attrs, TypeList in, const ValueType& out) {
  constexpr std::array<int64_t, 4> kHeadDims = {64, 96, 128, 256};
  alignas(16) static std::byte somewhere[16];  // the answer ignores addresses
  const auto view = [](const ValueType& type) {
    return make_view(somewhere, type.dtype, type.shape);
  };
  return in[kCacheK].shape[1] % 16 == 0 && std::ranges::count(kHeadDims, attrs.head_dim) > 0 &&
         supported([&] {
           make_paged_call(attrs, {.q = view(in[kQ]),
                                   .k_cache = view(in[kCacheK]),
                                   .v_cache = view(in[kCacheV]),
                                   .page_table = view(in[kPageTable]),
                                   .out = view(out),
                                   .spans = reinterpret_cast<int32_t*>(somewhere)});
         });
}

DecodeDevice decode_device_of(const DeviceInfo& device) {
  return {.compute_capability = device.compute_capability,
          .num_sms = device.num_sms,
          .shared_bytes = static_cast<int>(device.shared_memory_per_cta)};
}

std::vector<ValueType> types_of(std::span<const TensorView> views) {
  std::vector<ValueType> types;
  for (const TensorView& v : views) types.push_back({v.dtype, v.shape});
  return types;
}

namespace {

// The same for steps with prompts in another kernel.
DecodeDesc one_token_each(DecodeDesc desc) {
  desc.max_tokens = std::min(desc.max_tokens, desc.max_sequences);
  return desc;
}

// both: the decode kernel takes the first sequences, which have one new token each.
enum class Choice : uint8_t { segments, decode, both, plain };

// By head dim, dtypes, and how many tokens a step has of how many sequences.
Choice choose_attention(const ops::AttentionAttrs& attrs, TypeList in, const ValueType& out,
                        const DeviceInfo& device) {
  const int64_t sequences = in[kPageTable].shape[0];
  const auto decodes = [&](const DecodeDesc& desc) {
    return supported([&] { choose(desc, decode_device_of(device)); });
  };
  const DecodeDesc desc = decode_desc(attrs, in, out);
  const bool decode = decodes(desc);
  if (decode && few_tokens_each(in[kQ].shape[0], sequences)) return Choice::decode;
  if (takes_segments(attrs, in, out)) {
    return sequences > 1 && decodes(one_token_each(desc)) ? Choice::both : Choice::segments;
  }
  return decode ? Choice::decode : Choice::plain;
}

// The spans, and behind them how many sequences are the decode kernel's.
int64_t decodes_offset(const Shape& table) {
  return round_up((3 * table[0] + 1) * static_cast<int64_t>(sizeof(int32_t)), 8);
}
int64_t spans_bytes(const Shape& table) {
  return decodes_offset(table) + static_cast<int64_t>(sizeof(int64_t));
}

int64_t* decode_count(const OpCall& call, int32_t* spans) {
  return reinterpret_cast<int64_t*>(reinterpret_cast<std::byte*>(spans) +
                                    decodes_offset(call.in[kPageTable].shape));
}

// `decodes`: runs in place of the first sequences, which have one new token each; empty: no such
// sequences.
BoundKernel bind_segments(const LaunchArgs& args, Scratch& scratch, BoundKernel decodes = {}) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::AttentionAttrs>();
  auto* spans = reinterpret_cast<int32_t*>(args.workspace);
  std::byte* counters = scratch.get(args, kAttentionWorkspaceBytes);
  PagedOperands operands = paged_operands(call);
  operands.spans = spans;
  const PagedCall paged = make_paged_call(attrs, operands);
  const AttentionConfig config = choose(paged.desc, paged.params(), attention_device(args.device));
  const int64_t* sequences = args.live(BatchAxis::sequence);
  return [&call, attrs, spans, counters, config, sequences, decodes = std::move(decodes),
          num_sms = args.device.num_sms](const LaunchContext& context) {
    const TensorView& table = call.in[kPageTable];
    int64_t* const count = decodes ? decode_count(call, spans) : nullptr;
    query_spans(call.in[kQStart].as<const int32_t>(), call.in[kKvLen].as<const int32_t>(),
                sequences, static_cast<int>(table.shape[0]), spans, count, context);
    if (decodes) decodes({context.stream, true});
    PagedOperands operands = paged_operands(call);
    operands.spans = spans;
    const PagedCall paged = make_paged_call(attrs, operands);
    attention(paged.desc, paged.params(), config, counters, context.stream, num_sms);
  };
}

// `sequences` in device memory, if a kernel of the same op counts them; null: the step's.
BoundKernel bind_decode(const LaunchArgs& args, Scratch& scratch,
                        const int64_t* sequences = nullptr) {
  DecodeDesc desc = decode_desc(args.call.attrs<ops::AttentionAttrs>(), types_of(args.call.in),
                                types_of(args.call.out)[0]);
  if (sequences != nullptr) desc = one_token_each(desc);
  const DecodeConfig config = choose(desc, decode_device_of(args.device));
  prepare_decode_attention(desc, config);
  DecodeParams fixed{.sequences = sequences ? sequences : args.live(BatchAxis::sequence),
                     .workspace = scratch.get(args, config.workspace_bytes),
                     .history_ready = args.whole_batch && sequences == nullptr};
  return [&call = args.call, desc, config, fixed](const LaunchContext& context) {
    DecodeParams p = fixed;
    p.q = from_first_token(call, call.in[kQ]).data;
    p.k_cache = call.in[kCacheK].data;
    p.v_cache = call.in[kCacheV].data;
    p.q_start = call.in[kQStart].as<const int32_t>();
    p.kv_len = call.in[kKvLen].as<const int32_t>();
    p.page_table = call.in[kPageTable].as<const int32_t>();
    p.out = from_first_token(call, call.out[0]).data;
    decode_attention(desc, p, config, context);
  };
}

BoundKernel bind_both(const LaunchArgs& args, Scratch& segments, Scratch& decode) {
  auto* const spans = reinterpret_cast<int32_t*>(args.workspace);
  return bind_segments(args, segments, bind_decode(args, decode, decode_count(args.call, spans)));
}

}  // namespace

BoundKernel bind_plain_attention(const LaunchArgs& args, std::shared_ptr<DeviceMemory> turns) {
  return [&call = args.call, turns,
          sequences = args.live(BatchAxis::sequence)](const LaunchContext& context) {
    plain_attention({.q = call.in[kQ],
                     .k_cache = call.in[kCacheK],
                     .v_cache = call.in[kCacheV],
                     .q_start = call.in[kQStart],
                     .kv_len = call.in[kKvLen],
                     .page_table = call.in[kPageTable],
                     .out = call.out[0],
                     .sequences = sequences,
                     .attrs = call.attrs<ops::AttentionAttrs>(),
                     .turns = turns ? reinterpret_cast<const uint64_t*>(turns->data()) : nullptr},
                    context);
  };
}

void add_attention_kernels(KernelTable& table) {
  const auto scratch = std::make_shared<Scratch>(), decodes = std::make_shared<Scratch>();
  const auto info = [](const Op& op, TypeList in, TypeList out,
                       const DeviceInfo& device) -> KernelInfo {
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    if (attrs.dual) return dual_attention_info(attrs, in, out[0], device);
    switch (choose_attention(attrs, in, out[0], device)) {
      case Choice::segments:
        return {"attention.segments", spans_bytes(in[kPageTable].shape)};
      case Choice::decode:
        return {"attention.decode", 0};
      case Choice::both:
        return {"attention.decode+segments", spans_bytes(in[kPageTable].shape)};
      case Choice::plain:
        break;
    }
    return {"attention.plain", 0};
  };
  const auto bind = [scratch, decodes](const LaunchArgs& args) -> BoundKernel {
    const auto& attrs = args.call.attrs<ops::AttentionAttrs>();
    if (attrs.dual) return bind_dual_attention(args, *scratch, *decodes);
    switch (
        choose_attention(attrs, types_of(args.call.in), types_of(args.call.out)[0], args.device)) {
      case Choice::segments:
        return bind_segments(args, *scratch);
      case Choice::decode:
        return bind_decode(args, *decodes);
      case Choice::both:
        return bind_both(args, *scratch, *decodes);
      case Choice::plain:
        break;
    }
    return bind_plain_attention(args, nullptr);
  };
  table.add(ops::kAttention.kind, {.info = info, .bind = bind});
}

}  // namespace braid::cuda
