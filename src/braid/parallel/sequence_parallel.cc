#include "braid/parallel/sequence_parallel.h"

#include <algorithm>
#include <numeric>

#include "braid/ops/attention.h"
#include "braid/ops/input_names.h"
#include "braid/ops/latent_attention.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"

namespace braid {

LayoutPlan sequence_parallel(const Program& program, const SequenceMesh& mesh, SequenceLayout q,
                             SequenceLayout kv) {
  const int P = mesh.ranks();
  if (std::ssize(q.ranks) != P || std::ssize(kv.ranks) != P) {
    fail(ErrorCode::kInvalidArgument, "tokens over {} ranks and keys over {}, on {} ranks",
         q.ranks.size(), kv.ranks.size(), P);
  }
  for (int r = 0; r < P; ++r) {
    if (q.rows(r) == even_part(q.length(), P, r).size()) continue;
    fail(ErrorCode::kInvalidArgument, "{} of {} tokens on rank {}, wanted {}", q.rows(r),
         q.length(), r, even_part(q.length(), P, r).size());
  }
  if (std::ranges::find(program.ops, &ops::kLatentAttention, &Op::def) != program.ops.end()) {
    fail(ErrorCode::kUnsupported,
         "{}: sequence parallelism (--sp) of latent attention is not supported: divide heads and "
         "experts (--tp)",
         program.name);
  }
  LayoutPlan plan{.axis = "world", .P = P, .pinned = {}, .tokens = {}};
  plan.tokens = TokenSharding{mesh, std::move(q), std::move(kv)};
  const auto head = program.find("lm_head");
  if (P > 1 && head && program.value(*head).type.shape[0] >= P) {
    std::vector<Range> rows;
    for (int r = 0; r < P; ++r) {
      rows.push_back(even_part(program.value(*head).type.shape[0], P, r));
    }
    plan.pinned["lm_head"] = Placement::shard(0, std::move(rows));
  }
  return plan;
}

LayoutPlan row_parallel(const Program& program, const SequenceMesh& mesh,
                        const std::vector<std::vector<std::string>>& parts) {
  const int P = mesh.ranks();
  const auto rows_of = [&](const std::string& input) {
    const auto id = program.find(input);
    BRAID_CHECK(id.has_value(), "no input '{}'", input);
    return program.value(*id).type.shape[0];
  };
  int64_t length = 0;
  for (const auto& inputs : parts) length += rows_of(inputs[0]);
  if (length < P) {
    fail(ErrorCode::kInvalidArgument,
         "{} tokens cannot be divided over {} ranks: at most --ranks {}", length, P, length);
  }
  LayoutPlan plan{.axis = "world", .P = P, .pinned = {}, .tokens = {}, .rows = RowSharding{mesh}};
  int64_t begin = 0;
  for (const auto& inputs : parts) {
    const int64_t rows = rows_of(inputs[0]);
    std::vector<Range> shares;
    for (int r = 0; r < P; ++r) {
      const Range share = even_part(length, P, r);
      shares.push_back({std::clamp<int64_t>(share.begin - begin, 0, rows),
                        std::clamp<int64_t>(share.end - begin, 0, rows)});
    }
    for (const std::string& input : inputs) {
      if (rows_of(input) != rows) {
        fail(ErrorCode::kInvalidArgument, "input '{}' has {} rows beside {} of '{}'", input,
             rows_of(input), rows, inputs[0]);
      }
      plan.pinned[input] = Placement::shard(0, shares);
    }
    begin += rows;
  }
  return plan;
}

namespace {

// All ranks meet.
std::vector<ValueId> meet(Builder& b, int P, const std::vector<ValueId>& kept,
                          const std::vector<ValueId>& closed, std::vector<ValueType> opens) {
  std::vector<int> world(P);
  std::iota(world.begin(), world.end(), 0);
  return b.op(ops::kSync,
              Attrs::of(ops::SyncAttrs{.axis = "world",
                                       .group = std::move(world),
                                       .arrivals = {},
                                       .opens = std::move(opens),
                                       .opened_arrivals = {}}),
              ops::sync_inputs(kept, closed));
}

// Rank 0's reads from all others.
ops::MoveAttrs moves(const SequenceLayout& kv, int rank, int64_t heads) {
  ops::MoveAttrs attrs{rank, {}};
  int64_t row = 0;
  for (int peer = 1; rank == 0 && peer < static_cast<int>(kv.ranks.size()); ++peer) {
    const int64_t rows = kv.rows(peer);
    for (int v = 0; v < 2 && rows > 0; ++v) {
      attrs.moves.push_back(
          {.peer = peer, .src = 2 + v, .dst = v, .rows = rows, .dst_row = row, .heads = heads});
    }
    row += rows;
  }
  return attrs;
}

}  // namespace

std::vector<RankProgram> gather_kv(const Program& program, const SequenceLayout& kv) {
  const int P = static_cast<int>(kv.ranks.size());
  BRAID_CHECK(kv.rows(0) == 0 && kv.length() > 0, "keys that rank 0 has");
  std::vector<RankProgram> ranks;
  for (int r = 0; r < P; ++r) {
    Builder b("gather_kv", {.sequence = 1});
    const auto slots = [&](const char* name, int64_t rows) {
      return b.input(name, {DType::i32, {rows}, BatchAxis::none});
    };
    const ValueId from = slots(inputs::kKvSlots, kv.max_rows()),
                  to = slots(inputs::kToSlots, kv.length());
    for (const Op& op : program.ops) {
      if (op.def != &ops::kAttention) continue;
      const auto scope = b.scope(op.scope);
      const Value &k = program.value(op.inputs[1]), &v = program.value(op.inputs[2]);
      const ValueId cache_k = b.state(k.name, k.type), cache_v = b.state(v.name, v.type);
      const int64_t heads = k.type.shape[2];
      const ValueType all{
          k.type.dtype, {1, kv.length(), heads, k.type.shape[3]}, BatchAxis::sequence};
      const auto own =
          b.op(ops::kKvRead, Attrs::of(ops::KvReadAttrs{k.type.dtype}), {from, cache_k, cache_v});
      const auto here = meet(b, P, own, {}, {all, all});
      b.op(ops::kPull, Attrs::of(moves(kv, r, heads)), {here[0], here[1], own[0], own[1]});
      meet(b, P, own, here, {});
      b.op(ops::kKvWrite, {}, {here[0], here[1], to, cache_k, cache_v});
    }
    RankProgram& rank = ranks.emplace_back();
    rank.rank = r;
    rank.program = b.finish({});
    rank.placements.resize(rank.program.values.size());
  }
  return ranks;
}

}  // namespace braid
