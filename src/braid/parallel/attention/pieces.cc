#include "braid/parallel/attention/pieces.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace braid {

Range KeyPart::of(int64_t rows) const {
  const auto end = [&](int parts) {
    const int64_t all = (int64_t{1} << count) - 1, left = (int64_t{1} << (count - parts)) - 1;
    return rows - rows * left / all;
  };
  return {end(index), end(index + 1)};
}

AttentionPieces::AttentionPieces(std::span<Builder> builders, const SequenceAttention& attention,
                                 const SequenceMesh& mesh, const AttentionInputs& inputs,
                                 const AttentionDivision& division)
    : builders_(builders), a_(attention), mesh_(mesh), division_(division), in_(inputs) {
  const size_t P = world();
  BRAID_CHECK(builders.size() == P, "{} programs of {} ranks", builders.size(), P);
  if (a_.q.ranks.size() != P || a_.kv.ranks.size() != P) {
    fail(ErrorCode::kInvalidArgument,
         "sequence-parallel attention: queries over {} ranks and keys over {}, on {} ranks",
         a_.q.ranks.size(), a_.kv.ranks.size(), P);
  }
  if (a_.kv_heads < 1 || a_.q_heads % a_.kv_heads != 0) {
    fail(ErrorCode::kInvalidArgument,
         "sequence-parallel attention: {} query heads do not divide over {} KV heads", a_.q_heads,
         a_.kv_heads);
  }
  if (mesh.degrees.head_groups() > a_.q_heads) {
    fail(ErrorCode::kInvalidArgument,
         "sequence-parallel attention: {} head groups of {} query heads: a rank would have none",
         mesh.degrees.head_groups(), a_.q_heads);
  }
  BRAID_CHECK(division.most_parts >= 1 && division.most_parts <= 16 && division.least_rows >= 1);
  const auto check = [&](const char* name, ValueId id, ValueType want) {
    if (builders_[0].type(id) == want) return;
    fail(ErrorCode::kInvalidArgument, "sequence-parallel attention: {} is {}, wanted {}", name,
         to_string(builders_[0].type(id)), to_string(want));
  };
  check("q", in_.q, q_type(a_));
  check("k", in_.k, kv_type(a_));
  check("v", in_.v, kv_type(a_));
  if (in_.first == kNoValue) in_.first = in_.q;
  q_.value = in_.q, k_.value = in_.k, v_.value = in_.v;
  joint_q_.value = in_.joint_q, joint_k_.value = in_.joint_k, joint_v_.value = in_.joint_v;
  ring_steps_ = mesh_.ring_steps();
  for (auto& steps : ring_steps_) {
    for (SequenceMesh::RingStep& step : steps) {
      if (mesh.mode == SpMode::ring) step.from = step.source;  // hands nothing on
    }
  }
  for (int i = 0; i < R(); ++i) {
    std::set<int> steps;
    for (int x = 0; x < world(); ++x) {
      if (ring_step(x, i).handed_on()) steps.insert(ring_step(x, i).fetched);
    }
    fetched_.emplace_back(steps.begin(), steps.end());
  }
}

const SequenceMesh::RingStep& AttentionPieces::ring_step(int rank, int step) const {
  return ring_steps_[rank][step];
}

int AttentionPieces::ring_source(int rank, int step) const {
  return ring_step(rank, step).source;
}

bool AttentionPieces::hands_on() const {
  return std::ranges::any_of(fetched_,
                             [](const std::vector<int>& steps) { return !steps.empty(); });
}

Range AttentionPieces::q_heads(int rank) const {
  return even_part(a_.q_heads, mesh_.degrees.head_groups(), mesh_.head_group(rank));
}

Range AttentionPieces::kv_heads(int rank) const {
  const Range q = q_heads(rank);
  return {q.begin / a_.group(), (q.end - 1) / a_.group() + 1};
}

bool AttentionPieces::stores(int rank, int owner) const {
  return mesh_.topology.mapped && mesh_.topology.link(rank, owner) == LinkClass::machine;
}

int64_t AttentionPieces::most(const std::function<int64_t(int rank)>& of) const {
  int64_t most = 1;  // an empty value has a place too
  for (int x = 0; x < world(); ++x) most = std::max(most, of(x));
  return most;
}

std::vector<int> AttentionPieces::sources(int rank, int k) const {
  std::vector<int> result;
  const int t = (mesh_.t(rank) - k % T() + T()) % T();
  for (int n = 0; n < U(); ++n) {
    // Each rank begins with another peer, so no rank serves all others at once.
    const int u = (mesh_.u(rank) + n) % U();
    if (k > 0 || n > 0) result.push_back(mesh_.rank(t, u, mesh_.r(rank)));
  }
  return result;
}

int64_t AttentionPieces::buffered_rows(const SequenceLayout& layout, int rank, int k,
                                       KeyPart part) const {
  int64_t rows = 0;
  for (int source : sources(rank, k)) rows += part.of(layout.rows(source)).size();
  return rows;
}

// Every rank gets rows of every part.
int AttentionPieces::parts(const std::function<std::vector<int>(int rank)>& sources) const {
  bool crosses = false;
  int64_t rows = std::numeric_limits<int64_t>::max();
  for (int x = 0; x < world(); ++x) {
    for (int source : sources(x)) {
      crosses = crosses || mesh_.topology.link(x, source) == LinkClass::cluster;
      rows = std::min(rows, a_.kv.rows(source));
    }
  }
  int count = crosses ? division_.most_parts : 1;
  while (count > 1 && KeyPart{count - 1, count}.of(rows).size() < division_.least_rows) --count;
  return count;
}

std::vector<int> AttentionPieces::fit_parts(
    const std::vector<int>& wanted,
    const std::function<int64_t(const std::vector<int>& parts)>& segments) const {
  if (wanted.empty()) return {};
  int others = std::ranges::max(wanted), last = others;
  while (true) {
    std::vector<int> parts;
    for (int n : wanted) parts.push_back(std::min(n, others));
    parts.back() = std::min(wanted.back(), last);
    if (last == 1 || segments(parts) <= division_.most_segments) return parts;
    --(others > 1 ? others : last);
  }
}

int AttentionPieces::parts_of_class(int k) const {
  return parts([&](int x) { return sources(x, k); });
}

int AttentionPieces::parts_of_ring(int i) const {
  return parts([&](int x) { return std::vector{ring_source(x, i)}; });
}

Range AttentionPieces::joint_rows(int rank) const {
  return even_part(a_.joint_q, R(), mesh_.r(rank));
}

ValueType AttentionPieces::q_buffer(int k) const {
  const int64_t rows = most([&](int x) { return buffered_rows(a_.q, x, k); });
  const int64_t heads = most([&](int x) { return q_heads(x).size(); });
  return {a_.dtype, {a_.batch, rows, heads, a_.head_dim}, BatchAxis::sequence};
}

ValueType AttentionPieces::kv_buffer(int k, KeyPart part) const {
  const int64_t rows = most([&](int x) { return buffered_rows(a_.kv, x, k, part); });
  const int64_t heads = most([&](int x) { return kv_heads(x).size(); });
  return {a_.dtype, {a_.batch, rows, heads, a_.head_dim}, BatchAxis::sequence};
}

ValueType AttentionPieces::ring_buffer(int k, KeyPart part) const {
  ValueType type = kv_buffer(k);
  type.shape[1] = most([&](int x) { return ring_rows(x, k, part); });
  return type;
}

int64_t AttentionPieces::ring_rows(int source, int k, KeyPart part) const {
  return buffered_rows(a_.kv, source, k) + (k == 0 ? part.of(a_.kv.rows(source)).size() : 0);
}

std::vector<ValueId> AttentionPieces::emit(const OpDef& def, const std::vector<ValueId>& inputs,
                                           const char* tag,
                                           const std::function<Attrs(int rank)>& attrs) {
  std::vector<ValueId> outputs;
  for (int x = 0; x < world(); ++x) {
    Builder& builder = builders_[x];
    builder.mark(tag);
    const auto scope = builder.scope(scope_);
    std::vector<ValueId> made = builder.op(def, attrs(x), inputs);
    builder.mark("");
    BRAID_CHECK(x == 0 || made == outputs, "rank {}: values differ from rank 0's", x);
    outputs = std::move(made);
  }
  return outputs;
}

void AttentionPieces::sync(const Sync& sync) {
  const std::vector<ValueId> inputs = ops::sync_inputs(sync.kept, sync.closed, sync.arrivals);
  const std::string axis = sync.axis;
  std::vector<ValueType> opens;
  std::vector<int> counters;
  for (const Buffer* buffer : sync.opens) {
    if (buffer->type == ops::arrivals_type(world())) counters.push_back(std::ssize(opens));
    opens.push_back(buffer->type);
  }
  const auto outputs = emit(ops::kSync, inputs, sync.tag, [&](int x) {
    ops::SyncAttrs attrs{.axis = axis,
                         .group = group(x, axis),
                         .arrivals = {},
                         .opens = opens,
                         .opened_arrivals = counters};
    if (sync.arrivals != kNoValue) {
      attrs.arrivals = pushes_of(sync.arrivals)[x];
    }
    return Attrs::of(attrs);
  });
  pushes_.erase(sync.arrivals);
  for (size_t i = 0; i < outputs.size(); ++i) sync.opens[i]->value = outputs[i];
}

std::vector<int> AttentionPieces::group(int rank, const std::string& axis) const {
  if (axis.empty()) return {};
  if (axis != "world") return mesh_.mesh.group(rank, axis);
  std::vector<int> all(world());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<std::vector<int64_t>>& AttentionPieces::pushes_of(ValueId arrivals) {
  auto& pushes = pushes_[arrivals];
  pushes.resize(world(), std::vector<int64_t>(world()));
  return pushes;
}

AttentionPieces::Results AttentionPieces::open(std::vector<ValueId> kept,
                                               const std::vector<Buffer*>& buffers) {
  std::vector<Buffer*> opens{plan(ops::arrivals_type(world())), plan(q_type(a_))};
  if (a_.joint_q > 0) opens.push_back(plan(builders_[0].type(in_.joint_q)));
  const bool relayed = a_.joint_q > 0 && mesh_.topology.machines > 1 && mesh_.topology.devices > 1;
  if (relayed) opens.push_back(plan(ops::arrivals_type(world())));
  const std::vector<Buffer*> results = opens;
  opens.insert(opens.end(), buffers.begin(), buffers.end());
  if (world() > 1) {
    sync({.axis = "world", .kept = std::move(kept), .closed = {}, .opens = opens});
  } else {  // a rank alone meets nobody
    std::vector<ValueType> types;
    for (const Buffer* buffer : opens) types.push_back(buffer->type);
    const std::vector<ValueId> made = this->buffers("results", types);
    for (size_t i = 0; i < opens.size(); ++i) opens[i]->value = made[i];
  }
  return {.o = results[1]->value,
          .joint_o = a_.joint_q > 0 ? results[2]->value : kNoValue,
          .arrivals = results[0]->value,
          .joint_arrivals = relayed ? results[3]->value : kNoValue};
}

AttentionOutputs AttentionPieces::close(const Results& results, std::vector<ValueId> kept,
                                        bool meet) {
  if (world() == 1) return {results.o, results.joint_o};
  scope("close");
  std::vector<ValueId> closed{results.o};
  if (results.joint_o != kNoValue) closed.push_back(results.joint_o);
  sync({.axis = meet ? "world" : "",
        .kept = std::move(kept),
        .closed = closed,
        .arrivals = results.arrivals,
        .opens = {}});
  return {results.o, results.joint_o};
}

std::vector<ValueId> AttentionPieces::buffers(std::string_view name,
                                              const std::vector<ValueType>& types) {
  const std::string within = scope_;
  scope(fmt::format("{}.{}", within, name));
  std::vector<ValueId> made = emit(ops::kBuffers, {in_.first}, "",
                                   [&](int) { return Attrs::of(ops::BuffersAttrs{types}); });
  scope(within);
  return made;
}

}  // namespace braid
