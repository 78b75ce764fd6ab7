#include "braid/parallel/attention/keys_apart.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "braid/ops/attention_state.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/lower_attention.h"

namespace braid {
namespace {

// Where inputs of a push stand.
enum PushInput : uint8_t { kArrivals, kFirstSource };

class Lowering {
 public:
  Lowering(std::span<Builder> builders, const SequenceLayout& tokens)
      : builders_(builders), tokens_(tokens), P_(static_cast<int>(builders.size())) {
    BRAID_CHECK(std::ssize(tokens.ranks) == P_, "{} programs of {} ranks", P_, tokens.ranks.size());
    world_.resize(static_cast<size_t>(P_));
    std::iota(world_.begin(), world_.end(), 0);
  }

  int64_t rows(int rank) const { return tokens_.rows(rank); }
  int64_t first_row(int rank) const {
    int64_t first = 0;
    for (int r = 0; r < rank; ++r) first += rows(r);
    return first;
  }
  const ValueType& type(ValueId id) const { return builders_[0].type(id); }

  // The same op on every rank, with attributes of the rank's own.
  std::vector<ValueId> emit(const char* stage, const OpDef& def, const std::vector<ValueId>& inputs,
                            const std::function<Attrs(int rank)>& attrs, const char* tag = "") {
    std::vector<ValueId> outputs;
    for (int r = 0; r < P_; ++r) {
      Builder& b = builders_[static_cast<size_t>(r)];
      b.mark(tag);
      const auto scope = b.scope(stage);
      outputs = b.op(def, attrs(r), inputs);
      b.mark("");
    }
    return outputs;
  }
  ValueId emit1(const char* stage, const OpDef& def, const std::vector<ValueId>& inputs,
                const Attrs& attrs) {
    return emit(stage, def, inputs, [&](int) { return attrs; })[0];
  }

  // All ranks meet; what is opened is free on all of them.
  std::vector<ValueId> open(ValueId early, const std::vector<ValueType>& types) {
    std::vector<int> counters;
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] == ops::arrivals_type(P_)) counters.push_back(static_cast<int>(i));
    }
    std::vector<ValueId> inputs(ops::kSyncFirstClosed + ops::kSyncMaxClosed, kNoValue);
    inputs[0] = early;
    return emit(
        "open", ops::kSync, inputs,
        [&](int) {
          return Attrs::of(ops::SyncAttrs{.axis = "world",
                                          .group = world_,
                                          .arrivals = {},
                                          .opens = types,
                                          .opened_arrivals = counters});
        },
        kLinkTag);
  }

  // Ends once the pushes to this rank have arrived: of each rank for which `comes` is true.
  void close(const char* stage, ValueId early, ValueId arrivals, const std::vector<ValueId>& closed,
             const std::function<bool(int from, int to)>& comes) {
    std::vector<ValueId> inputs(ops::kSyncFirstClosed + ops::kSyncMaxClosed, kNoValue);
    inputs[0] = early;
    inputs[ops::kSyncArrivals] = arrivals;
    std::ranges::copy(closed, inputs.begin() + ops::kSyncFirstClosed);
    emit(
        stage, ops::kSync, inputs,
        [&](int to) {
          ops::SyncAttrs attrs{};
          for (int from = 0; from < P_; ++from) attrs.arrivals.push_back(comes(from, to) ? 1 : 0);
          return Attrs::of(attrs);
        },
        kLinkTag);
  }

  void push(const char* stage, const std::vector<ValueId>& inputs,
            const std::function<std::vector<ops::Move>(int rank)>& moves) {
    emit(
        stage, ops::kPush, inputs,
        [&](int r) { return Attrs::of(ops::MoveAttrs{.rank = r, .moves = moves(r), .told = {}}); },
        kLinkTag);
  }

  // Rows of all tokens, as many heads as `own` has.
  ValueType all_rows(ValueId own) const {
    ValueType all = type(own);
    all.shape[1] = tokens_.length();
    return all;
  }

 private:
  std::span<Builder> builders_;
  const SequenceLayout& tokens_;
  const int P_;
  std::vector<int> world_;
};

}  // namespace

std::vector<int64_t> attention_windows(const Program& program) {
  std::vector<int64_t> windows;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kAttention) continue;
    const int64_t window = op.attrs.as<ops::AttentionAttrs>().window;
    if (std::ranges::find(windows, window) == windows.end()) windows.push_back(window);
  }
  return windows;
}

ValueId lower_keys_apart(std::span<Builder> builders, const SequenceLayout& tokens,
                         const KeysApart& apart, const KeysApartInputs& in,
                         const KeysApartAttention& a) {
  Lowering l(builders, tokens);
  const int P = static_cast<int>(builders.size());
  const int64_t room = std::max<int64_t>(tokens.max_rows(), 1);
  const Attrs heads = Attrs::of(ops::ToSequenceAttrs{a.attention.head_dim});
  const ValueId own[] = {l.emit1("own", ops::kToSequence, {a.q}, heads),
                         l.emit1("own", ops::kToSequence, {a.k}, heads),
                         l.emit1("own", ops::kToSequence, {a.v}, heads)};
  ValueType state = l.type(own[0]);
  const DType dtype = std::exchange(state.dtype, DType::f32);
  state.shape[3] += 2;
  ValueType states = state;
  states.shape[1] = P * room;
  const auto opened =
      l.open(a.early, {ops::arrivals_type(P), ops::arrivals_type(P), l.all_rows(own[0]),
                       l.all_rows(own[1]), l.all_rows(own[2]), states});
  const ValueId come = opened[0], back = opened[1], q = opened[2], k = opened[3], v = opened[4],
                merged = opened[5];

  l.push("push_qkv", {come, own[0], own[1], own[2], q, k, v}, [&](int r) {
    std::vector<ops::Move> moves;
    for (int n = 0; n < P && l.rows(r) > 0; ++n) {
      const int peer = (r + n) % P;  // each rank begins with another one
      for (int i = 0; i < 3; ++i) {
        moves.push_back({.peer = peer,
                         .src = kFirstSource + i,
                         .dst = kFirstSource + 3 + i,
                         .rows = l.rows(r),
                         .dst_row = l.first_row(r),
                         .heads = l.type(own[i]).shape[2]});
      }
    }
    return moves;
  });
  l.close("wait_qkv", a.early, come, {q, k, v}, [&](int from, int) { return l.rows(from) > 0; });

  l.emit("append", ops::kKvWrite, {k, v, in.new_slots, a.cache.k, a.cache.v},
         [](int) { return Attrs(); });
  const auto window = std::ranges::find(apart.windows, a.attention.window);
  BRAID_CHECK(window != apart.windows.end(), "a window of {}", a.attention.window);
  ops::AttentionStateAttrs attrs{.attention = a.attention,
                                 .window_row = window - apart.windows.begin()};
  attrs.attention.window = 0;
  const ValueId made =
      l.emit1("attend", ops::kAttentionState,
              {q, a.cache.k, a.cache.v, in.held_slots, in.held_rows, in.held_begin, in.held_end},
              Attrs::of(attrs));
  l.push("push_states", {back, made, merged}, [&](int r) {
    std::vector<ops::Move> moves;
    for (int n = 0; n < P; ++n) {
      const int owner = (r + n) % P;
      if (l.rows(owner) == 0) continue;
      moves.push_back({.peer = owner,
                       .src = kFirstSource,
                       .dst = kFirstSource + 1,
                       .rows = l.rows(owner),
                       .src_row = l.first_row(owner),
                       .dst_row = r * room,
                       .heads = state.shape[2]});
    }
    return moves;
  });
  l.close("wait_states", a.early, back, {merged}, [&](int, int to) { return l.rows(to) > 0; });
  return l.emit1("merge", ops::kMergeStates, {merged}, Attrs::of(ops::MergeStatesAttrs{P, dtype}));
}

}  // namespace braid
