// Binds attention, kv_append, rope and rope_append to their kernels.
#include "braid/kernels/cpu/attention/attention.h"
#include "braid/kernels/cpu/attention/attention_state.h"
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/pointwise/rope.h"
#include "braid/kernels/cpu/pointwise/rows.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/attention.h"
#include "braid/ops/attention_state.h"
#include "braid/ops/rope_append.h"

namespace braid::cpu {
namespace {

KvCache cache_of(const TensorView& k, const TensorView& v) {
  return {.k = k.data,
          .v = v.data,
          .dtype = k.dtype,
          .page_size = k.shape[1],
          .kv_heads = k.shape[2],
          .head_dim = k.shape[3]};
}

KernelInfo attention_info(const Op& op, TypeList in, int threads, Isa isa) {
  const auto& a = op.attrs.as<ops::AttentionAttrs>();
  return {fmt::format("attention.{}", name(isa)),
          attention_scratch_bytes(in[0].shape[1] / a.head_dim, a.group, a.head_dim, threads)};
}

BoundKernel bind_attention(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::AttentionAttrs>();
  AttentionParams p{.cache = cache_of(call.in[1], call.in[2]),
                    .max_pages = call.in[5].cols(),
                    .q_heads = call.in[0].cols() / a.head_dim,
                    .group = a.group,
                    .head_offset = a.head_offset,
                    .q_stride = call.in[0].cols(),
                    .out_stride = call.out[0].cols(),
                    .scale = a.scale,
                    .softcap = a.softcap,
                    .window = a.window,
                    .dual = a.dual ? &*a.dual : nullptr,
                    .scratch = args.workspace};
  std::shared_ptr<const std::vector<double>> frequencies;
  if (a.dual) {
    frequencies = std::make_shared<std::vector<double>>(rope_frequencies(a.dual->rope, nullptr));
    p.frequencies = frequencies->data();
  }
  return [bound = p, frequencies, &call, isa](const Team& team) {
    auto p = bound;
    p.q = call.in[0].as<const float>();
    p.out = call.out[0].as<float>();
    p.q_start = call.in[3].as<const int32_t>();
    p.kv_len = call.in[4].as<const int32_t>();
    p.page_table = call.in[5].as<const int32_t>();
    p.first_token = call.part->begin.token;
    p.sequences = call.extents().sequence;
    attention(p, team, isa);
  };
}

BoundKernel bind_state(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::AttentionStateAttrs>();
  const ops::AttentionAttrs& a = attrs.attention;
  AttentionStateParams p{.cache = cache_of(call.in[1], call.in[2]),
                         .dual = a.dual ? &*a.dual : nullptr,
                         .chunks = attrs.chunks,
                         .queries = call.in[0].shape[1],
                         .row_slots = call.in[3].cols(),
                         .q_heads = call.in[0].shape[2],
                         .group = a.group,
                         .scale = a.scale,
                         .softcap = a.softcap,
                         .scratch = args.workspace};
  std::shared_ptr<std::vector<double>> frequencies;
  if (a.dual) {
    frequencies = std::make_shared<std::vector<double>>(rope_frequencies(a.dual->rope, nullptr));
    p.frequencies = frequencies->data();
  }
  return [bound = p, frequencies, &call, row = attrs.window_row, isa](const Team& team) {
    auto p = bound;
    p.q = call.in[0].as<const float>();
    p.slots = call.in[3].as<const int32_t>();
    p.rows = call.in[4].as<const int32_t>();
    p.begin = call.in[5].row_as<const int32_t>(row);
    p.end = call.in[6].as<const int32_t>();
    p.out = call.out[0].as<float>();
    attention_state(p, team, isa);
  };
}

BoundKernel bind_merge(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::MergeStatesAttrs>();
  MergeStatesParams p{.parts = attrs.parts,
                      .room = call.in[0].shape[1] / attrs.parts,
                      .heads = call.in[0].shape[2],
                      .head_dim = call.in[0].shape[3] - 2};
  return [bound = p, &call, all = attrs.sequence](const Team& team) {
    auto p = bound;
    p.states = call.in[0].as<const float>();
    // The kernel's row i of a rank's own is row i of the results.
    const int64_t behind = (p.parts - 1) * p.room;
    p.own = call.in.size() > 1 ? call.in[1].row_as<const float>(behind * p.heads) : nullptr;
    p.out = call.out[0].as<float>();
    p.queries = all ? p.room : call.extents().shard;
    merge_states(p, team);
  };
}

BoundKernel bind_pack(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const TensorView& sums = call.in[0];
  const int parts = call.attrs<ops::PackStatesAttrs>().parts;
  return [&call, parts, rows = sums.shape[1] / parts * sums.shape[2],
          D = sums.shape[3]](const Team& team) {
    pack_states({.sums = call.in[0].as<const float>(),
                 .l = call.in[1].as<const float>(),
                 .m = call.in[2].as<const float>(),
                 .out = call.out[0].as<float>(),
                 .parts = parts,
                 .rows = rows,
                 .head_dim = D},
                team);
  };
}

BoundKernel bind_append(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  KvAppendParams p{.cache = cache_of(call.in[3], call.in[4]),
                   .k_stride = call.in[0].cols(),
                   .v_stride = call.in[1].cols()};
  return [bound = p, &call, isa](const Team& team) {
    auto p = bound;
    p.k = call.in[0].as<const float>();
    p.v = call.in[1].as<const float>();
    p.slots = call.in[2].as<const int32_t>();
    p.tokens = call.rows();
    kv_append(p, team, isa);
  };
}

// A RopeSpec with its frequencies.
struct Rotation {
  std::vector<double> inv_freq;
  RopeSpec spec;

  Rotation(const ops::RopeAttrs& a, const TensorView& factors) {
    inv_freq = ops::rope_frequencies(a, factors.as<const float>());
    spec = {.inv_freq = inv_freq.data(),
            .mscale = a.attention_factor,
            .pairing = a.pairing,
            .head_dim = a.head_dim,
            .rot = a.rotary_dim};
  }
};

BoundKernel bind_rope(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::RopeAttrs>();
  auto rotation = std::make_shared<Rotation>(a, call.in[2]);
  RopeParams p{.rope = rotation->spec,
               .in = {.x_stride = call.in[0].cols(), .heads = call.in[0].cols() / a.head_dim},
               .out_stride = call.out[0].cols()};
  return [bound = p, rotation, &call, isa](const Team& team) {
    auto p = bound;
    p.rope.positions = call.in[1].as<const int32_t>();
    p.in.x = call.in[0].as<const float>();
    p.out = call.out[0].as<float>();
    p.tokens = call.rows();
    rope(p, team, isa);
  };
}

BoundKernel bind_rope_append(const LaunchArgs& args, Isa isa) {
  struct Held {
    Rotation rotation;
    std::vector<float> q_norm, k_norm;
  };
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::RopeAppendAttrs>();
  auto held =
      std::make_shared<Held>(Held{{a.rope, call.in[4]}, widen(call.in[8]), widen(call.in[9])});
  const auto heads = [&](const TensorView& x, const std::vector<float>& norm) {
    return RopeHeads{.x_stride = x.cols(),
                     .norm_w = norm.empty() ? nullptr : norm.data(),
                     .norm_eps = a.eps,
                     .heads = x.cols() / a.rope.head_dim};
  };
  RopeAppendParams p{.rope = held->rotation.spec,
                     .q = heads(call.in[0], held->q_norm),
                     .q_out_stride = call.out[0].cols(),
                     .k = heads(call.in[1], held->k_norm),
                     .v_stride = call.in[2].cols(),
                     .cache = cache_of(call.in[6], call.in[7])};
  return [bound = p, held, &call, isa](const Team& team) {
    auto p = bound;
    p.rope.positions = call.in[3].as<const int32_t>();
    p.q.x = call.in[0].as<const float>();
    p.k.x = call.in[1].as<const float>();
    p.v = call.in[2].as<const float>();
    p.q_out = call.out[0].as<float>();
    p.slots = call.in[5].as<const int32_t>();
    p.tokens = call.rows();
    rope_append(p, team, isa);
  };
}

}  // namespace

void add_attention_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kAttention.kind,
            {.info = [cap](const Op& op, TypeList in, TypeList,
                           int threads) { return attention_info(op, in, threads, cap); },
             .bind = [cap](const LaunchArgs& args) { return bind_attention(args, cap); }});
  table.add(ops::kAttentionState.kind,
            {.info =
                 [cap](const Op&, TypeList in, TypeList, int) {
                   return KernelInfo{fmt::format("attention_state.{}", name(cap)),
                                     attention_state_scratch_bytes(in[0].shape[2], in[0].shape[3])};
                 },
             .bind = [cap](const LaunchArgs& args) { return bind_state(args, cap); }});
  table.add(ops::kMergeStates.kind, simple_kernel(ops::kMergeStates, cap, bind_merge));
  table.add(ops::kPackStates.kind, simple_kernel(ops::kPackStates, cap, bind_pack));
  table.add(ops::kKvAppend.kind, simple_kernel(ops::kKvAppend, cap, bind_append));
  table.add(ops::kRope.kind, simple_kernel(ops::kRope, cap, bind_rope));
  table.add(ops::kRopeAppend.kind, simple_kernel(ops::kRopeAppend, cap, bind_rope_append));
}

}  // namespace braid::cpu
