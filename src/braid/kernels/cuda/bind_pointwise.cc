// Binds embedding, gather_rows, rms_norm, add, add_rms_norm, gated, rope, kv_append,
// rope_append and rope_sequence.
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/pointwise/device/add.h"
#include "braid/kernels/cuda/pointwise/device/embedding.h"
#include "braid/kernels/cuda/pointwise/device/gated.h"
#include "braid/kernels/cuda/pointwise/device/gather_rows.h"
#include "braid/kernels/cuda/pointwise/device/norm.h"
#include "braid/kernels/cuda/pointwise/device/rope.h"
#include "braid/ops/attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope_append.h"
#include "braid/ops/rope_sequence.h"

namespace braid::cuda {
namespace {

// Parameters are made anew at each launch, since operands may have moved; the choice is made once.
template <class Params, class Describe, class Choose, class Run>
BoundKernel bind_rows(const LaunchArgs& args, Params (*make)(const OpCall&), Describe describe,
                      Choose choose, Run run) {
  const int64_t* rows = args.live(args.call.axis);
  const auto config = choose(describe(make(args.call)), args.device.num_sms);
  return [&call = args.call, rows, config, make, run](const LaunchContext& context) {
    Params p = make(call);
    p.rows = rows;
    run(p, config, context);
  };
}

EmbeddingParams make_embedding(const OpCall& call) {
  return {.ids = call.in[0],
          .table = call.in[1],
          .y = call.out[0],
          .scale = call.attrs<ops::EmbeddingAttrs>().scale};
}

RmsNormParams make_norm(const OpCall& call) {
  const auto& attrs = call.attrs<ops::RmsNormAttrs>();
  return {.a = call.in[0],
          .b = {},
          .w = call.in[1],
          .s = {},
          .y = call.out[0],
          .eps = attrs.eps,
          .group = attrs.group};
}

RmsNormParams make_add_norm(const OpCall& call) {
  return {.a = call.in[0],
          .b = call.in[1],
          .w = call.in[2],
          .s = call.out[0],
          .y = call.out[1],
          .eps = call.attrs<ops::RmsNormAttrs>().eps,
          .group = call.in[0].cols()};
}

AddParams make_add(const OpCall& call) {
  return {.a = call.in[0], .b = call.in[1], .y = call.out[0]};
}

GatedParams make_gated(const OpCall& call) {
  return {.gate = call.in[0],
          .up = call.in[1],
          .y = call.out[0],
          .activation = call.attrs<ops::GatedAttrs>().activation};
}

BoundKernel bind_embedding(const LaunchArgs& args) {
  return bind_rows(args, make_embedding, embedding_desc, choose_map, embedding);
}
BoundKernel bind_norm(const LaunchArgs& args) {
  return bind_rows(args, make_norm, rms_norm_desc, choose_norm, rms_norm);
}
BoundKernel bind_add_norm(const LaunchArgs& args) {
  return bind_rows(args, make_add_norm, rms_norm_desc, choose_norm, rms_norm);
}
BoundKernel bind_add(const LaunchArgs& args) {
  return bind_rows(args, make_add, add_desc, choose_map, add);
}
BoundKernel bind_gated(const LaunchArgs& args) {
  return bind_rows(args, make_gated, gated_desc, choose_map, gated);
}

BoundKernel bind_gather(const LaunchArgs& args) {
  const auto make = [](const OpCall& call, const BatchPart* part) {
    return GatherRowsParams{.x = call.in[0], .rows = call.in[1], .y = call.out[0], .part = part};
  };
  const RowsConfig config =
      choose_map(gather_rows_desc(make(args.call, args.part)), args.device.num_sms);
  return [&call = args.call, part = args.part, config, make](const LaunchContext& context) {
    gather_rows(make(call, part), config, context);
  };
}

RopeAppendParams make_rope_append(const OpCall& call) {
  return {.q = call.in[0],
          .k = call.in[1],
          .v = call.in[2],
          .positions = call.in[3],
          .slots = call.in[5],
          .cache_k = call.in[6],
          .cache_v = call.in[7],
          .q_norm = call.in[8],
          .k_norm = call.in[9],
          .y = call.out[0],
          .attrs = call.attrs<ops::RopeAppendAttrs>()};
}

// Sequences of k and v are caches of a single page.
RopeAppendParams make_rope_sequence(const OpCall& call) {
  return {.q = call.in[0],
          .k = call.in[1],
          .v = call.in[2],
          .positions = call.in[3],
          .slots = {},
          .cache_k = call.out[1],
          .cache_v = call.out[2],
          .q_norm = call.in[5],
          .k_norm = call.in[6],
          .y = make_view(call.out[0].data, call.out[0].dtype, call.in[0].shape),
          .attrs = call.attrs<ops::RopeAppendAttrs>()};
}

RopeAppendParams make_rope(const OpCall& call) {
  RopeAppendParams p{.q = call.in[0], .positions = call.in[1], .y = call.out[0]};
  p.attrs.rope = call.attrs<ops::RopeAttrs>();
  return p;
}

RopeAppendParams make_kv_append(const OpCall& call) {
  RopeAppendParams p{.k = call.in[0],
                     .v = call.in[1],
                     .slots = call.in[2],
                     .cache_k = call.in[3],
                     .cache_v = call.in[4]};
  p.attrs.rope.head_dim = call.attrs<ops::KvAppendAttrs>().head_dim;
  return p;
}

BoundKernel bind_rope_kernel(const LaunchArgs& args, RopeAppendParams (*make)(const OpCall&),
                             const std::shared_ptr<DeviceMemory>& turns) {
  const int64_t* rows = args.live(args.call.axis);
  const auto with_turns = [make, turns, rows](const OpCall& call) {
    RopeAppendParams p = make(call);
    p.rows = rows;
    if (turns) p.turns = reinterpret_cast<const uint64_t*>(turns->data());
    return p;
  };
  const RopeConfig config =
      choose_rope(rope_append_desc(with_turns(args.call)), args.device.num_sms);
  return [&call = args.call, config, with_turns](const LaunchContext& context) {
    rope_append(with_turns(call), config, context);
  };
}

BoundKernel bind_rope_append(const LaunchArgs& args) {
  const auto& rope = args.call.attrs<ops::RopeAppendAttrs>().rope;
  return bind_rope_kernel(args, make_rope_append, turns_table(args, rope, args.call.in[4]));
}
BoundKernel bind_rope_sequence(const LaunchArgs& args) {
  const auto& rope = args.call.attrs<ops::RopeAppendAttrs>().rope;
  return bind_rope_kernel(args, make_rope_sequence, turns_table(args, rope, args.call.in[4]));
}
BoundKernel bind_rope(const LaunchArgs& args) {
  const auto& rope = args.call.attrs<ops::RopeAttrs>();
  return bind_rope_kernel(args, make_rope, turns_table(args, rope, args.call.in[2]));
}
BoundKernel bind_kv_append(const LaunchArgs& args) {
  return bind_rope_kernel(args, make_kv_append, nullptr);
}

}  // namespace

void add_pointwise_kernels(KernelTable& table) {
  const auto add_kernel = [&](const OpDef& def, BoundKernel (*bind)(const LaunchArgs&)) {
    table.add(def.kind, simple_kernel(def.kind, bind));
  };
  add_kernel(ops::kEmbedding, bind_embedding);
  add_kernel(ops::kGatherRows, bind_gather);
  add_kernel(ops::kRmsNorm, bind_norm);
  add_kernel(ops::kAddRmsNorm, bind_add_norm);
  add_kernel(ops::kAdd, bind_add);
  add_kernel(ops::kGated, bind_gated);
  add_kernel(ops::kRopeAppend, bind_rope_append);
  add_kernel(ops::kRopeSequence, bind_rope_sequence);
  table.add_fusions(ops::rope_sequence_fusions());
  add_kernel(ops::kRope, bind_rope);
  add_kernel(ops::kKvAppend, bind_kv_append);
}

}  // namespace braid::cuda
