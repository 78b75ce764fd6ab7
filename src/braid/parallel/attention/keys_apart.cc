#include "braid/parallel/attention/keys_apart.h"

#include <algorithm>
#include <utility>

#include "braid/ops/attention_state.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/rank_builders.h"

namespace braid {
namespace {

// A push's inputs.
enum PushInput : uint8_t { kArrivals, kFirstSource };

class Lowering : public RankBuilders {
 public:
  Lowering(std::span<Builder> builders, const SequenceLayout& tokens)
      : RankBuilders(builders), tokens_(tokens) {
    BRAID_CHECK(std::ssize(tokens.ranks) == ranks(), "{} programs of {} ranks", ranks(),
                tokens.ranks.size());
  }

  int64_t rows(int rank) const { return tokens_.rows(rank); }
  int64_t first_row(int rank) const {
    int64_t first = 0;
    for (int r = 0; r < rank; ++r) first += rows(r);
    return first;
  }

 private:
  const SequenceLayout& tokens_;
};

}  // namespace

std::vector<int64_t> attention_windows(const Program& program) {
  std::vector<int64_t> windows;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kAttention) continue;
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    if (std::ranges::find(windows, attrs.window) != windows.end()) continue;
    windows.push_back(attrs.window);
    if (!attrs.dual) continue;
    BRAID_CHECK(attrs.window == 0, "dual chunks within a window of {}", attrs.window);
    const int64_t keys =
        program.value(op.inputs[1]).type.shape[1] * program.value(op.inputs[5]).type.shape[1];
    for (int64_t n = attrs.dual->chunk; n < keys; n += attrs.dual->chunk) windows.push_back(-n);
    windows.push_back(kQueryPosition);
  }
  return windows;
}

SequenceLayout guests_of(const KeysApart& apart, const SequenceLayout& tokens) {
  if (apart.own == 0) return tokens;
  const auto P = std::ssize(tokens.ranks);
  BRAID_CHECK(tokens.length() == P * tokens.max_rows() && apart.own <= tokens.max_rows(),
              "{} own rows of {} on each of {} ranks", apart.own, tokens.max_rows(), P);
  return even_layout(tokens.length() - P * apart.own, static_cast<int>(P));
}

std::vector<KeysApartBuffers> open_keys_apart(
    std::span<Builder> builders, const SequenceLayout& guests, ValueId first, int64_t head_dim,
    const std::vector<std::pair<ValueType, ValueType>>& attentions) {
  if (guests.length() == 0) return std::vector<KeysApartBuffers>(attentions.size());
  Lowering l(builders, guests);
  const int P = static_cast<int>(builders.size());
  const int64_t room = std::max<int64_t>(guests.max_rows(), 1);
  std::vector<ValueType> types{ops::arrivals_type(P), ops::arrivals_type(P)};
  for (const auto& [q, k] : attentions) {
    const int64_t own = std::max<int64_t>(q.shape[0] / P - guests.max_rows(), 0);
    const auto rows = [&](const ValueType& of) {
      return ValueType{of.dtype,
                       {1, guests.length() + own, of.shape[1] / head_dim, head_dim},
                       BatchAxis::sequence};
    };
    ValueType states = rows(q);
    states.dtype = DType::f32;
    states.shape[1] = P * room;
    states.shape[3] += 2;
    types.insert(types.end(), {rows(q), rows(k), rows(k), states});
  }
  const std::vector<ValueId> opened = l.open(first, types);
  std::vector<KeysApartBuffers> buffers;
  for (size_t i = 2; i < opened.size(); i += 4) {
    buffers.push_back({.come = opened[0],
                       .back = opened[1],
                       .q = opened[i],
                       .k = opened[i + 1],
                       .v = opened[i + 2],
                       .states = opened[i + 3],
                       .before = static_cast<int>(buffers.size())});
  }
  return buffers;
}

ValueId lower_keys_apart(std::span<Builder> builders, const SequenceLayout& guests,
                         const KeysApart& apart, const KeysApartInputs& in,
                         const KeysApartAttention& a, const KeysApartBuffers& buffers) {
  Lowering l(builders, guests);
  const int P = static_cast<int>(builders.size()), nth = buffers.before + 1;
  const int64_t room = std::max<int64_t>(guests.max_rows(), 1);
  const Attrs heads = Attrs::of(ops::ToSequenceAttrs{a.attention.head_dim});
  const ValueId own[] = {l.emit1("own", ops::kToSequence, {a.q}, heads),
                         l.emit1("own", ops::kToSequence, {a.k}, heads),
                         l.emit1("own", ops::kToSequence, {a.v}, heads)};
  const DType dtype = l.type(a.q).dtype;
  const auto [come, back, q, k, v, merged, before] = buffers;
  const auto window = std::ranges::find(apart.windows, a.attention.window);
  BRAID_CHECK(window != apart.windows.end(), "a window of {}", a.attention.window);
  ops::AttentionStateAttrs attrs{.attention = a.attention,
                                 .window_row = window - apart.windows.begin()};
  attrs.attention.window = 0;
  if (attrs.attention.dual) {
    attrs.chunks = std::ranges::find(window, apart.windows.end(), kQueryPosition) - window;
  }
  const auto append = [&](const char* scope, ValueId new_k, ValueId new_v, ValueId slots) {
    l.emit(scope, ops::kKvWrite, {new_k, new_v, slots, a.cache.k, a.cache.v},
           [](int) { return Attrs(); });
  };
  const auto attend = [&](const char* scope, ValueId queries, const HeldInputs& held) {
    return l.emit1(scope, ops::kAttentionState,
                   {queries, a.cache.k, a.cache.v, in.held_slots, held.rows, held.begin, held.end},
                   Attrs::of(attrs));
  };
  if (guests.length() == 0) {
    append("append", own[1], own[2], in.own.slots);
    const ValueId made = attend("attend", own[0], in.own);
    return l.emit1("merge", ops::kMergeStates, {made}, Attrs::of(ops::MergeStatesAttrs{1, dtype}));
  }

  // Own rows come behind the guests' of all ranks: one call attends to all keys.
  l.push("push_qkv", {come, own[0], own[1], own[2], q, k, v}, [&](int r) {
    std::vector<ops::Move> moves;
    const auto move = [&](int peer, int64_t rows, int64_t from, int64_t to) {
      for (int i = 0; i < 3 && rows > 0; ++i) {
        moves.push_back({.peer = peer,
                         .src = kFirstSource + i,
                         .dst = kFirstSource + 3 + i,
                         .rows = rows,
                         .src_row = from,
                         .dst_row = to,
                         .heads = l.type(own[i]).shape[2]});
      }
    };
    for (int n = 0; n < P; ++n) move((r + n) % P, l.rows(r), 0, l.first_row(r));
    move(r, apart.own, l.rows(r), guests.length());
    return moves;
  });
  l.close("wait_qkv", a.first, come, nth, {q, k, v},
          [&](int from, int to) { return l.rows(from) > 0 || (from == to && apart.own > 0); });
  append("append", k, v, in.guests.slots);
  const ValueId made = attend("attend", q, in.guests);
  l.push("push_states", {back, made, merged}, [&, heads = l.type(merged).shape[2]](int r) {
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
                       .heads = heads});
    }
    return moves;
  });
  l.close("wait_states", a.first, back, nth, {merged}, [&](int, int to) { return l.rows(to) > 0; });
  std::vector<ValueId> states{merged};
  if (apart.own > 0) states.push_back(made);
  return l.emit1("merge", ops::kMergeStates, states, Attrs::of(ops::MergeStatesAttrs{P, dtype}));
}

}  // namespace braid
