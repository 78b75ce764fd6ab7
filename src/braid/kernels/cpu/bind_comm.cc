// Binds the communication ops to the collectives of fabric/ and to kernels/cpu/comm.
#include <algorithm>
#include <cstring>
#include <memory>

#include "braid/fabric/collectives/all_gather.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/reduce_scatter.h"
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/comm/linear_all_reduce.h"
#include "braid/kernels/cpu/comm/reduce_norm.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/axis_ranks.h"
#include "braid/ops/comm.h"
#include "braid/ops/expert_tiles.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/gated_push.h"
#include "braid/ops/one_sided.h"

namespace braid::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

void require_ranks(const OpDef& def, int ranks, const fabric::Comm& comm) {
  BRAID_CHECK(ranks == comm.size(), "{} over {} ranks on a group of {}", def.kind, ranks,
              comm.size());
}

BoundKernel bind_all_reduce(const LaunchArgs& args, fabric::Comm& comm) {
  const OpCall& call = args.call;
  return [&call, &comm](const Team& team) {
    fabric::all_reduce(comm, team, call.in[0].as<const float>(), call.out[0].as<float>(),
                       call.rows() * call.in[0].cols());
  };
}

// Elements in each rank's part of a step's tokens; every thread has separate room.
class PartSizes {
 public:
  PartSizes(int ranks, int threads)
      : ranks_(ranks), sizes_(ranks_ * static_cast<size_t>(threads)) {}

  std::span<const int64_t> of(int64_t tokens, int64_t per_token, const Team& team) {
    const auto mine = std::span(sizes_).subspan(static_cast<size_t>(team.index) * ranks_, ranks_);
    for (size_t r = 0; r < ranks_; ++r) {
      mine[r] = per_token *
                even_part(tokens, static_cast<int64_t>(ranks_), static_cast<int64_t>(r)).size();
    }
    return mine;
  }

 private:
  size_t ranks_;
  std::vector<int64_t> sizes_;  // [threads, ranks]
};

// Parts follow the launch's tokens, so a launch over several micro-batches would cut at other rows
// than each micro-batch's.
void require_part(const OpCall& call, int ranks, int rank) {
  const Range rows = even_part(call.extents().token, ranks, rank);
  BRAID_CHECK(call.extents().shard == rows.size(), "{}: {} rows are no part of {} tokens",
              call.op->def->kind, call.extents().shard, call.extents().token);
}

BoundKernel bind_all_gather(const LaunchArgs& args, fabric::Comm& comm) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::CommAttrs>();
  require_ranks(*call.op->def, attrs.ranks, comm);
  if (attrs.dim == 0 && call.axis == BatchAxis::shard) {
    const auto sizes = std::make_shared<PartSizes>(comm.size(), args.threads);
    const int64_t row_bytes = bytes_of(call.in[0].dtype, call.in[0].cols());
    return [&call, &comm, sizes, row_bytes](const Team& team) {
      require_part(call, comm.size(), comm.index());
      fabric::all_gather(comm, team, call.in[0].data, call.out[0].data,
                         sizes->of(call.extents().token, row_bytes, team));
    };
  }
  BRAID_CHECK(attrs.dim < 2, "the CPU backend gathers rows and columns, not dimension {}",
              attrs.dim);
  // Rows without a batch axis are columns of a single row.
  const bool flat = attrs.dim == 0;
  const int64_t bytes = flat ? call.in[0].row_bytes : kFloat;
  std::vector<int64_t> widths;
  for (const Range& part : attrs.parts) widths.push_back(part.size() * bytes);
  return [&call, &comm, widths, flat](const Team& team) {
    fabric::all_gather_columns(comm, team, call.in[0].data, call.out[0].data,
                               flat ? 1 : call.rows(), widths);
  };
}

BoundKernel bind_reduce_scatter(const LaunchArgs& args, fabric::Comm& comm) {
  const OpCall& call = args.call;
  require_ranks(*call.op->def, call.attrs<ops::CommAttrs>().ranks, comm);
  const auto sizes = std::make_shared<PartSizes>(comm.size(), args.threads);
  return [&call, &comm, sizes](const Team& team) {
    require_part(call, comm.size(), comm.index());
    fabric::reduce_scatter(comm, team, call.in[0].as<const float>(), call.out[0].as<float>(),
                           sizes->of(call.extents().token, call.in[0].cols(), team));
  };
}

// Local: it needs no Comm.
BoundKernel bind_take_shard(const LaunchArgs& args) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::TakeShardAttrs>();
  if (!attrs.columns.empty()) {
    const DType dtype = call.in[0].dtype;
    const int64_t begin = bytes_of(dtype, attrs.columns[attrs.rank].begin);
    const auto bytes = static_cast<size_t>(bytes_of(dtype, call.out[0].cols()));
    return [&call, begin, bytes](const Team& team) {
      const Range rows = team.share(call.rows());
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        std::memcpy(call.out[0].row(i), call.in[0].row(i) + begin, bytes);
      }
    };
  }
  return [&call, ranks = attrs.ranks, rank = attrs.rank](const Team& team) {
    const Range rows = even_part(call.extents().token, ranks, rank);
    require_part(call, ranks, rank);
    const int64_t row_bytes = bytes_of(call.in[0].dtype, call.in[0].cols());
    const Range share = team.share(rows.size() * row_bytes);
    std::memcpy(call.out[0].data + share.begin,
                call.in[0].data + rows.begin * row_bytes + share.begin, share.size());
  };
}

KernelInfo describe_linear_all_reduce(TypeList in, int threads, LinearIsa isa) {
  return {fmt::format("linear_all_reduce.{}", name(isa)),
          linear_all_reduce_scratch_bytes(in[0].shape[0], in[1].shape[0], in[0].shape[1],
                                          in[1].dtype, threads, isa)};
}

BoundKernel bind_linear_all_reduce(const LaunchArgs& args, fabric::Comm& comm, LinearIsa isa) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::LinearAllReduceAttrs>();
  require_ranks(*call.op->def, attrs.ranks, comm);
  // Biases of 16-bit models are widened once.
  const auto bias = std::make_shared<std::vector<float>>(attrs.bias_elsewhere ? std::vector<float>()
                                                                              : widen(call.in[2]));
  const LinearAllReduceParams p = {
      .K = call.in[0].cols(), .w = call.in[1], .bias = bias->empty() ? nullptr : bias->data()};
  return [bound = p, bias, &call, &comm, scratch = args.workspace, isa](const Team& team) {
    auto p = bound;
    p.x = call.in[0].as<const float>();
    p.y = call.out[0].as<float>();
    p.M = call.rows();
    linear_all_reduce(comm, team, p,
                      choose_linear_all_reduce({.M = p.M,
                                                .N = p.w.shape[0],
                                                .ranks = comm.size(),
                                                .link = comm.slowest(),
                                                .slot_bytes = comm.slot_bytes(),
                                                .lanes = std::min(comm.lanes(), team.count)}),
                      isa, scratch);
  };
}

// The two fused norms: `divided` where the residual is divided over tokens.
BoundKernel bind_reduce_norm(const LaunchArgs& args, fabric::Comm& comm, bool divided, Isa isa) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::ReduceNormAttrs>();
  require_ranks(*call.op->def, attrs.ranks, comm);
  const auto w = std::make_shared<std::vector<float>>(widen(call.in[2]));
  const ReduceNormParams p = {.w = w->data(), .cols = call.in[0].cols(), .eps = attrs.eps};
  const ReduceNormDesc d = {.cols = p.cols,
                            .ranks = comm.size(),
                            .link = comm.slowest(),
                            .slot_bytes = comm.slot_bytes(),
                            .lanes = comm.lanes(),
                            .divided = divided};
  choose_reduce_norm(d);  // refuses rows that are too long
  return [bound = p, d, w, &call, &comm, isa,
          sums = reinterpret_cast<float*>(args.workspace)](const Team& team) {
    auto p = bound;
    p.x = call.in[0].as<const float>();
    p.r = call.in[1].as<const float>();
    p.s = call.out[0].as<float>();
    p.y = call.out[1].as<float>();
    p.rows = call.rows();
    auto desc = d;
    desc.rows = p.rows;
    const ReduceNormConfig config = choose_reduce_norm(desc);
    if (d.divided) {
      require_part(call, comm.size(), comm.index());
      reduce_scatter_add_rms_norm_all_gather(comm, team, p, config, isa);
    } else {
      all_reduce_add_rms_norm(comm, team, p, config, sums, isa);
    }
  };
}

KernelInfo describe_all_reduce_norm(const Op& op, TypeList in) {
  const int64_t rows = ceil_div(in[0].shape[0], op.attrs.as<ops::ReduceNormAttrs>().ranks);
  return {fmt::format("{}.fabric", op.def->kind), rows * in[0].shape[1] * kFloat};
}

// A stream's Comm over the op's axis.
fabric::Comm* comm_of(const AxisComms& axes, const Op& op, Stream stream) {
  const ops::AxisRanks want = ops::axis_of(op);
  const auto it = std::ranges::find_if(axes, [&](const auto& axis) {
    fabric::Comm* const comm = axis.second[stream];
    return axis.first == want.axis && comm != nullptr && comm->size() == want.ranks;
  });
  return (it == axes.end() ? axes.front() : *it).second[stream];
}

}  // namespace

void add_comm_kernels(KernelTable& table, const StreamComms& comms, Isa cap) {
  add_comm_kernels(table, AxisComms{{"tp", comms}}, cap);
}

void add_comm_kernels(KernelTable& table, const AxisComms& axes, Isa cap) {
  using Bind = std::function<BoundKernel(const LaunchArgs&, fabric::Comm&)>;
  using Info = std::function<KernelInfo(const Op&, TypeList in, int threads)>;
  const auto add_kernel = [&](const OpDef& def, const Bind& bind, Info info = {}) {
    if (!info) {
      info = [](const Op& op, TypeList, int) {
        return KernelInfo{fmt::format("{}.fabric", op.def->kind), 0};
      };
    }
    table.add(def.kind, {.info = [info](const Op& op, TypeList in, TypeList,
                                        int threads) { return info(op, in, threads); },
                         .bind =
                             [axes, bind](const LaunchArgs& args) {
                               fabric::Comm* const comm = comm_of(axes, *args.call.op, args.stream);
                               BRAID_CHECK(comm != nullptr, "no communication on the {} stream",
                                           to_string(args.stream));
                               return bind(args, *comm);
                             }});
  };
  add_kernel(ops::kAllReduce, bind_all_reduce);
  add_kernel(ops::kAllGather, bind_all_gather);
  add_kernel(ops::kReduceScatter, bind_reduce_scatter);
  table.add(ops::kTakeShard.kind, {.info =
                                       [](const Op&, TypeList, TypeList, int) {
                                         return KernelInfo{"take_shard.copy", 0};
                                       },
                                   .bind = bind_take_shard});
  const LinearIsa linear_isa = best_linear_isa(cap);
  add_kernel(
      ops::kLinearAllReduce,
      [linear_isa](const LaunchArgs& args, fabric::Comm& comm) {
        return bind_linear_all_reduce(args, comm, linear_isa);
      },
      [linear_isa](const Op&, TypeList in, int threads) {
        return describe_linear_all_reduce(in, threads, linear_isa);
      });
  add_kernel(
      ops::kAllReduceAddRmsNorm,
      [cap](const LaunchArgs& args, fabric::Comm& comm) {
        return bind_reduce_norm(args, comm, false, cap);
      },
      [](const Op& op, TypeList in, int) { return describe_all_reduce_norm(op, in); });
  add_kernel(ops::kReduceScatterAddRmsNormAllGather,
             [cap](const LaunchArgs& args, fabric::Comm& comm) {
               return bind_reduce_norm(args, comm, true, cap);
             });
}

void drop_communication(KernelTable& table) {
  drop_expert_exchange(table);
  const auto add = [&](const OpDef& def, auto bind) {
    table.add(def.kind,
              {.info = [](const Op&, TypeList, TypeList,
                          int) { return KernelInfo{.name = "none", .holds_units = false}; },
               .bind = bind});
  };
  for (const OpDef* def : {&ops::kAllReduce, &ops::kAllGather, &ops::kReduceScatter, &ops::kPull,
                           &ops::kPush, &ops::kSync}) {
    add(*def, [](const LaunchArgs&) { return [](const Team&) {}; });
  }
  for (const OpDef* def :
       {&ops::kLinearAllReduce, &ops::kAllReduceAddRmsNorm, &ops::kReduceScatterAddRmsNormAllGather,
        &ops::kDispatchGated, &ops::kLinearReturn, &ops::kGatedPush}) {
    add(*def, [](const LaunchArgs& args) -> BoundKernel {
      fail(ErrorCode::kUnsupported,
           "without communication: '{}' computes and communicates in one kernel; prompts with "
           "--schedule sequential have no such op",
           args.call.op->def->kind);
    });
  }
}

}  // namespace braid::cpu
