#include "braid/parallel/divided_prompt.h"

#include <algorithm>
#include <utility>

#include "braid/ops/attention.h"
#include "braid/ops/experts.h"
#include "braid/ops/input_names.h"
#include "braid/ops/join_sequence.h"
#include "braid/ops/latent_attention.h"
#include "braid/ops/segment_attention.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/attention/rank_builders.h"
#include "braid/parallel/tensor_parallel.h"

namespace braid {
namespace {

// Inputs of a push.
enum PushInput : uint8_t { kArrivals, kFirstSource };

// Caches whose keys move together: a sync closes the buffers of all.
constexpr size_t kCachesTogether = ops::kSyncMaxClosed / 2;

// Why the step's products stay whole; empty: they divide.
std::string reason_against(const Op& op) {
  if (op.def == &ops::kLatentAttention) return "latent attention reads a cache";
  if (op.def == &ops::kExpertLinear) return "experts have no parts in whole weights";
  return {};
}

// Writes the ranks' Programs anew: buffers in place of caches, and behind them what moves the keys.
class KeyMoves {
 public:
  KeyMoves(std::vector<RankProgram>& ranks, const DividedKeys& keys) : ranks_(ranks), keys_(keys) {
    for (RankProgram& rank : ranks_) ops_.push_back(std::exchange(rank.program.ops, {}));
    const std::vector<Op>& ops = ops_[0];
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].def != &ops::kAttention) continue;
      const ops::KvCache cache{ops[i].inputs[1], ops[i].inputs[2]};
      const auto same = [&](const Layer& layer) { return layer.cache.k == cache.k; };
      if (std::ranges::any_of(layers_, same)) continue;
      const auto begin = std::ranges::find(ops, ops[i].scope, &Op::scope) - ops.begin();
      layers_.push_back({cache, static_cast<size_t>(begin), i});
    }
  }

  void run() {
    size_t opened = 0, moved = 0;  // layers
    for (size_t i = 0; i < ops_[0].size(); ++i) {
      if (opened < layers_.size() && layers_[opened].begin == i) {
        const size_t n = std::min(kCachesTogether, layers_.size() - opened);
        open(std::span(layers_).subspan(opened, n));
        opened += n;
      }
      for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r].program.ops.push_back(ops_[r][i]);
      if (opened == moved || layers_[opened - 1].end != i) continue;
      build(ops_[0][i].scope, [&](std::span<Builder> builders) {
        move(builders, std::span(layers_).subspan(moved, opened - moved));
      });
      moved = opened;
    }
    BRAID_CHECK(moved == layers_.size(), "keys of {} of {} caches move", moved, layers_.size());
  }

 private:
  struct Layer {
    ops::KvCache cache;
    size_t begin = 0;  // the scope's first op
    size_t end = 0;    // the first attention
    ops::KvCache whole = {};
  };

  int ranks() const { return static_cast<int>(ranks_.size()); }
  int64_t tokens() const { return ranks_[0].program.capacity.token; }
  Range taken(int rank) const {
    return rank == 0 && keys_.all_on_first ? Range{0, tokens()}
                                           : even_part(tokens(), ranks(), rank);
  }
  int64_t room() const {
    int64_t most = 0;
    for (int r = 0; r < ranks(); ++r) most = std::max(most, taken(r).size());
    return most;
  }
  // Each rank's heads of a cache.
  const std::vector<Range>& heads(ValueId cache) const {
    const Placement& placed = ranks_[0].placements[cache];
    BRAID_CHECK(placed.is_shard(2), "a cache divided as {}", to_string(placed));
    return placed.parts;
  }
  int64_t all_heads(ValueId cache) const { return heads(cache).back().end; }
  // The rank's heads of a cache that no rank before has.
  Range own_heads(ValueId cache, int rank) const {
    Range own = heads(cache)[rank];
    if (rank > 0) own.begin = std::max(own.begin, heads(cache)[rank - 1].end);
    return own;
  }

  template <class Fn>
  void build(const std::string& scope, const Fn& fn) {
    std::vector<Builder> builders;
    for (RankProgram& rank : ranks_) builders.emplace_back(std::move(rank.program), scope);
    fn(std::span(builders));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].program = builders[r].release();
      ranks_[r].placements.resize(ranks_[r].program.values.size());
    }
  }

  // The caches' places in the Program become buffers; caches for all heads have their names.
  void open(std::span<Layer> layers) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Program& program = ranks_[r].program;
      std::vector<ValueType> types;
      std::vector<ValueId> made;
      const auto whole_of = [&](ValueId id) {
        Value whole{ValueKind::state, program.value(id).type, program.value(id).name};
        whole.type.shape = {keys_.pages, keys_.page_size, all_heads(id), whole.type.shape[3]};
        program.values[id] = {.type = program.value(id).type, .name = ""};
        program.values.push_back(whole);
        types.push_back(program.value(id).type);
        made.push_back(id);
        return static_cast<ValueId>(program.values.size() - 1);
      };
      for (Layer& layer : layers) layer.whole = {whole_of(layer.cache.k), whole_of(layer.cache.v)};
      const Op& first = ops_[r][layers[0].begin];
      const Attrs buffers = Attrs::of(ops::BuffersAttrs{std::move(types)});
      program.ops.push_back(
          {&ops::kBuffers, buffers, {first.inputs[0]}, std::move(made), first.scope, ""});
      ranks_[r].placements.resize(program.values.size());
    }
  }

  void move(std::span<Builder> builders, std::span<const Layer> layers) {
    RankBuilders b(builders);
    if (to_slots_ == kNoValue) {
      for (Builder& rank : builders) {
        to_slots_ = rank.input(inputs::kToSlots, {DType::i32, {room()}, BatchAxis::none});
      }
    }
    const ValueId first = layers[0].cache.k;
    std::vector<ValueType> types(2, ops::arrivals_type(ranks()));
    std::vector<ValueId> caches, inputs{kNoValue};
    for (const Layer& layer : layers) {
      for (ValueId id : {layer.cache.k, layer.cache.v}) {
        const ValueType& type = b.type(id);
        const int64_t D = type.shape[3];
        caches.push_back(id);
        inputs.push_back(
            b.emit1("keys", ops::kJoinSequence, {id},
                    Attrs::of(ops::JoinSequenceAttrs{D, type.shape[0] * type.shape[1]})));
        types.push_back({type.dtype, {1, room(), all_heads(id), D}, BatchAxis::sequence});
      }
    }
    const std::vector<ValueId> opened = b.open(first, types);
    const std::vector<ValueId> come(opened.begin() + 2, opened.end());
    inputs[kArrivals] = opened[0];
    inputs.insert(inputs.end(), come.begin(), come.end());
    b.push("push_keys", inputs, [&](int r) { return moves(r, caches); });
    b.close("wait_keys", first, opened[0], 1, come, [&](int from, int to) {
      return std::ranges::count(moves(from, caches), to, &ops::Move::peer) > 0;
    });
    for (size_t i = 0; i < layers.size(); ++i) {
      b.emit(
          "keep", ops::kKvWrite,
          {come[2 * i], come[2 * i + 1], to_slots_, layers[i].whole.k, layers[i].whole.v},
          [](int) { return Attrs(); }, kLinkTag);
    }
  }

  // A rank's heads of the keys that each rank takes.
  std::vector<ops::Move> moves(int rank, const std::vector<ValueId>& caches) const {
    std::vector<ops::Move> moves;
    for (int n = 0; n < ranks(); ++n) {
      const int peer = (rank + n) % ranks();  // each rank begins with itself
      const Range keys = taken(peer);
      for (size_t i = 0; i < caches.size(); ++i) {
        const Range own = own_heads(caches[i], rank);
        if (own.empty() || keys.empty()) continue;
        moves.push_back({.peer = peer,
                         .src = kFirstSource + static_cast<int>(i),
                         .dst = kFirstSource + static_cast<int>(caches.size() + i),
                         .rows = keys.size(),
                         .src_row = keys.begin,
                         .heads = own.size(),
                         .src_head = own.begin - heads(caches[i])[rank].begin,
                         .dst_head = own.begin});
      }
    }
    return moves;
  }

  std::vector<RankProgram>& ranks_;
  const DividedKeys& keys_;
  std::vector<std::vector<Op>> ops_;  // [ranks]
  std::vector<Layer> layers_;
  ValueId to_slots_ = kNoValue;
};

}  // namespace

std::vector<RankProgram> lower_divided_prompt(const Program& program, int P,
                                              const DividedKeys& keys,
                                              bool token_sharded_residual) {
  for (const Op& op : program.ops) {
    const std::string reason = reason_against(op);
    if (!reason.empty()) fail(ErrorCode::kUnsupported, "{}: {}", program.name, reason);
  }
  LayoutPlan plan = tensor_parallel(program, P, /*whole_experts=*/true);
  plan.token_sharded_residual = token_sharded_residual;
  std::vector<RankProgram> ranks = lower(program, plan);
  KeyMoves(ranks, keys).run();
  for (const RankProgram& rank : ranks) verify(rank.program);
  return ranks;
}

}  // namespace braid
