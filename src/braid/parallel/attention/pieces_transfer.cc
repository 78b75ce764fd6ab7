// Transfers of pieces: pulls for queries and keys, pushes for queries, keys and results.
#include <algorithm>
#include <array>

#include "braid/parallel/attention/pieces.h"

namespace braid {
namespace {

using ops::Move;

void add(std::vector<Move>& moves, const Move& move) {
  if (move.rows > 0 && move.heads > 0) moves.push_back(move);
}

}  // namespace

void AttentionPieces::pull_q(int k, const Buffer& dst) {
  emit(ops::kPull, {dst.value, kNoValue, in_.q}, kLinkTag, [&](int x) {
    const Range heads = q_heads(x);
    Moves moves;
    int64_t row = 0;
    for (int source : sources(x, k)) {
      const int64_t rows = a_.q.rows(source);
      add(moves, {.peer = source,
                  .src = 2,
                  .dst = 0,
                  .rows = rows,
                  .dst_row = row,
                  .heads = heads.size(),
                  .src_head = heads.begin});
      row += rows;
    }
    return Attrs::of(ops::MoveAttrs{x, moves});
  });
}

void AttentionPieces::pull_kv(int k, const KvBuffer& dst, KeyPart part) {
  emit(ops::kPull, {dst.k->value, dst.v->value, in_.k, in_.v}, kLinkTag, [&](int x) {
    const Range heads = kv_heads(x);
    Moves moves;
    int64_t row = 0;
    for (int source : sources(x, k)) {
      const Range rows = part.of(a_.kv.rows(source));
      for (int v : {0, 1}) {
        add(moves, {.peer = source,
                    .src = 2 + v,
                    .dst = v,
                    .rows = rows.size(),
                    .src_row = rows.begin,
                    .dst_row = row,
                    .heads = heads.size(),
                    .src_head = heads.begin});
      }
      row += rows.size();
    }
    return Attrs::of(ops::MoveAttrs{x, moves});
  });
}

// Ring step i of class k from the class' own rank.
std::vector<Move> AttentionPieces::ring_moves(int x, int k, int i, bool class_fetched,
                                              KeyPart part) const {
  const int peer = ring_source(x, i);
  const Range heads = kv_heads(x);  // the peer's too: they differ in r alone
  const Range own = k == 0 ? part.of(a_.kv.rows(peer)) : Range{};
  Moves moves;
  for (int v : {0, 1}) {
    add(moves, {.peer = peer,
                .src = 2 + v,
                .dst = v,
                .rows = own.size(),
                .src_row = own.begin,
                .heads = heads.size(),
                .src_head = heads.begin});
    if (!class_fetched) continue;
    add(moves, {.peer = peer,
                .src = 4 + v,
                .dst = v,
                .rows = buffered_rows(a_.kv, peer, k),
                .dst_row = own.size(),
                .heads = heads.size()});
  }
  return moves;
}

void AttentionPieces::pull_ring(int k, int i, const KvBuffer* held,
                                const std::vector<std::vector<KvBuffer>>& ring, KeyPart part) {
  const bool class_fetched = held != nullptr;
  BRAID_CHECK(part.count == 1 || !class_fetched, "parts of what a buffer has");
  std::vector<ValueId> inputs;
  const auto add_buffer = [&](const KvBuffer& kv) {
    for (const ValueId value : {kv.k->value, kv.v->value}) inputs.push_back(value);
  };
  add_buffer(ring[i - 1][part.index]);
  for (const ValueId value : {in_.k, in_.v}) inputs.push_back(value);
  if (class_fetched) add_buffer(*held);
  const int first_handed = static_cast<int>(inputs.size());
  const std::vector<int>& steps = fetched(i);
  for (int step : steps) add_buffer(ring[step - 1][0]);
  bool crosses = false;
  for (int x = 0; x < world(); ++x) {
    crosses = crosses || mesh_.topology.link(x, ring_step(x, i).from) == LinkClass::cluster;
  }
  // A fetch does not queue behind keys that are handed on. With a torus it stays in the ring's
  // stream, since the links' stream carries later classes first.
  const bool apart = crosses && hands_on() && T() == 1;
  emit(ops::kPull, inputs, apart ? kLinkTag : kRingTag, [&](int x) {
    const SequenceMesh::RingStep& step = ring_step(x, i);
    if (!step.handed_on()) {
      return Attrs::of(ops::MoveAttrs{x, ring_moves(x, k, i, class_fetched, part)});
    }
    const int at = static_cast<int>(std::ranges::find(steps, step.fetched) - steps.begin());
    Moves moves;
    for (int v : {0, 1}) {
      add(moves, {.peer = step.from,
                  .src = first_handed + 2 * at + v,
                  .dst = v,
                  .rows = ring_rows(step.source, k),
                  .heads = kv_heads(x).size()});
    }
    return Attrs::of(ops::MoveAttrs{x, moves});
  });
}

void AttentionPieces::emit_push(ValueId arrivals, const std::vector<ValueId>& values,
                                const char* tag,
                                const std::function<void(int rank, ops::MoveAttrs&)>& fill) {
  std::vector<ValueId> inputs{arrivals};
  inputs.insert(inputs.end(), values.begin(), values.end());
  auto& pushes = pushes_of(arrivals);
  emit(ops::kPush, inputs, tag, [&](int x) {
    ops::MoveAttrs attrs{.rank = x};
    fill(x, attrs);
    for (int peer : attrs.peers()) ++pushes[peer][x];
    return Attrs::of(attrs);
  });
}

int64_t AttentionPieces::row_in_class_0(const SequenceLayout& layout, int rank, int source) const {
  int64_t row = 0;
  for (int before : sources(rank, 0)) {
    if (before == source) break;
    row += layout.rows(before);
  }
  return row;
}

void AttentionPieces::push_qkv(ValueId arrivals, const Buffer& dst_q, const KvBuffer& dst) {
  const std::vector<ValueId> values{in_.q, in_.k, in_.v, dst_q.value, dst.k->value, dst.v->value};
  emit_push(arrivals, values, kLinkTag, [&](int x, ops::MoveAttrs& attrs) {
    for (int peer : sources(x, 0)) {
      for (int i : {0, 1, 2}) {
        const SequenceLayout& layout = i == 0 ? a_.q : a_.kv;
        const Range heads = i == 0 ? q_heads(peer) : kv_heads(peer);
        add(attrs.moves, {.peer = peer,
                          .src = 1 + i,
                          .dst = 4 + i,
                          .rows = layout.rows(x),
                          .dst_row = row_in_class_0(layout, peer, x),
                          .heads = heads.size(),
                          .src_head = heads.begin});
      }
    }
  });
}

void AttentionPieces::push_results(const Results& results, const std::vector<const Chunk*>& q,
                                   ValueId send, bool joint) {
  scope("push_o");
  joint = joint && a_.joint_q > 0 && world() > 1;
  const bool relayed = results.joint_arrivals != kNoValue, direct = joint && !relayed;
  if (joint && relayed) relay_joint(results);
  std::vector<ValueId> values;
  if (send != kNoValue) values = {send, results.o};
  const int joint_o = 1 + static_cast<int>(values.size());
  if (direct) values.push_back(results.joint_o);
  if (values.empty()) return;
  emit_push(results.arrivals, values, kLinkTag, [&](int x, ops::MoveAttrs& attrs) {
    if (send != kNoValue) add_rows(attrs, q);
    if (direct) {
      std::vector<int> others;
      for (int n = 1; n < world(); ++n) others.push_back((x + n) % world());
      add_joint(attrs.moves, joint_o, others, std::array{x});
    }
  });
}

// First to this rank's counterparts on other machines; then received rows, and this rank's own, to
// the other ranks of its machine: between machines a row goes once to each machine.
void AttentionPieces::relay_joint(const Results& results) {
  const Topology& topology = mesh_.topology;
  const auto same_number = [&](int x) {  // x first
    std::vector<int> ranks;
    for (int n = 0; n < topology.machines; ++n) {
      ranks.push_back((x + n * topology.devices) % world());
    }
    return ranks;
  };
  emit_push(results.joint_arrivals, {results.joint_o}, kLinkTag, [&](int x, ops::MoveAttrs& attrs) {
    const std::vector<int> ranks = same_number(x);
    add_joint(attrs.moves, 1, std::span(ranks).subspan(1), std::array{x});
  });
  sync({.axis = "",
        .tag = kRingTag,
        .kept = {in_.first},
        .closed = {results.joint_o},
        .arrivals = results.joint_arrivals,
        .opens = {}});
  emit_push(results.arrivals, {results.joint_o}, kRingTag, [&](int x, ops::MoveAttrs& attrs) {
    std::vector<int> others;
    for (int n = 1; n < topology.devices; ++n) {
      const int first = topology.machine_of(x) * topology.devices;
      others.push_back(first + (x - first + n) % topology.devices);
    }
    add_joint(attrs.moves, 1, others, same_number(x));
  });
}

// Finished rows of other ranks: rows not yet stored lie one after the other in the send buffer.
void AttentionPieces::add_rows(ops::MoveAttrs& attrs, const std::vector<const Chunk*>& q) const {
  const int x = attrs.rank;
  const Range heads = q_heads(x);
  Moves& moves = attrs.moves;
  int64_t row = 0;
  for (const Chunk* chunk : q) {
    for (const Piece& piece : (*chunk)[x]) {
      if (piece.owner < 0 || piece.owner == x || piece.rows == 0) continue;
      if (stores(x, piece.owner)) {
        if (std::ranges::count(attrs.told, piece.owner) == 0) attrs.told.push_back(piece.owner);
        continue;
      }
      Move* last = moves.empty() ? nullptr : &moves.back();
      if (last != nullptr && last->peer == piece.owner && last->src_row + last->rows == row &&
          last->dst_row + last->rows == piece.owner_row) {
        last->rows += piece.rows;
      } else {
        add(moves, {.peer = piece.owner,
                    .src = 1,
                    .dst = 2,
                    .rows = piece.rows,
                    .src_row = row,
                    .dst_row = piece.owner_row,
                    .heads = heads.size(),
                    .dst_head = heads.begin});
      }
      row += piece.rows;
    }
  }
}

void AttentionPieces::add_joint(Moves& moves, int joint_o, std::span<const int> peers,
                                std::span<const int> computed) const {
  for (int peer : peers) {
    for (int by : computed) {
      const Range heads = q_heads(by), rows = joint_rows(by);
      add(moves, {.peer = peer,
                  .src = joint_o,
                  .dst = joint_o,
                  .rows = rows.size(),
                  .src_row = rows.begin,
                  .dst_row = rows.begin,
                  .heads = heads.size(),
                  .src_head = heads.begin,
                  .dst_head = heads.begin});
    }
  }
}

}  // namespace braid
