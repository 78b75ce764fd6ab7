#include <algorithm>
#include <span>

#include "braid/parallel/attention/pieces.h"

// Torus attention (StreamFusion, section 4.3 and Algorithm 1, derived again in
// docs/sequence-parallel.md). Of rank (t, u, r), class k is what torus group t - k holds:
//   pull Q   queries of class k = 0..T-1 over the keys of class 0, the next queries on their way
//   pull KV  queries of classes 1..T-1 over the keys of class k = 1..T-1, the next keys on their
//            way
//   push O   queries of class 0 over the keys of classes 1..T-1, the other classes' results on
//            their way to their owners
// Where one call takes queries and keys as they come (attend_at_once, ring_at_once), all of it is
// one call, and keys from other machines come in parts. Inside a stage the ring steps follow each
// other, the next step's keys on their way; keys of other machines come to a machine once and
// are handed on inside it. With T = 1 the first stage is all there is, which is USP and TAS: they
// differ in where the groups lie.
namespace braid {
namespace {

// The keys of one class on this rank: its own ring step, then those of the ring neighbours.
struct KeyClass {
  // The class' buffers, by the parts in which it comes: of several where one call takes them; none
  // where all rows are its own.
  std::vector<ValueId> k, v;
  std::vector<ValueId> ring_k, ring_v;  // [R - 1], kNoValue: not open yet
  std::vector<ValueId> handed_on;       // those of them that other ranks of a machine read
  std::vector<Chunk> chunks;            // [R]

  ValueId whole_k() const { return k.empty() ? kNoValue : k[0]; }
  ValueId whole_v() const { return v.empty() ? kNoValue : v[0]; }
};

class Lowering {
 public:
  explicit Lowering(AttentionPieces& p)
      : p_(p),
        in_(p.inputs()),
        keys_(static_cast<size_t>(p.T())),
        q_(static_cast<size_t>(p.T()), kNoValue) {
    for (KeyClass& keys : keys_) {
      keys.ring_k = keys.ring_v = std::vector<ValueId>(static_cast<size_t>(p.R() - 1), kNoValue);
    }
  }

  AttentionOutputs run() {
    joint_q_ = p_.joint_q_chunk();
    joint_kv_ = p_.joint_kv_chunk();
    const bool at_once = choose_parts();
    open();
    pull();
    queries_ = query_chunks();
    if (at_once) {
      attend_at_once();
    } else if (!ring_at_once()) {
      by_stages();
    }
    std::vector<ValueId> kept{in_.q, in_.k, in_.v};
    for (const KeyClass& keys : keys_) {
      if (p_.R() > 1 && !keys.k.empty()) kept.insert(kept.end(), {keys.k[0], keys.v[0]});
      kept.insert(kept.end(), keys.handed_on.begin(), keys.handed_on.end());
    }
    return p_.close(opened_.results, kept);
  }

 private:
  // Stages 1 and 2 of the derivation; the third is "push_o".
  static std::string queries_stage(int k) { return fmt::format("pull_q{}", k); }
  static std::string keys_stage(int k) { return fmt::format("pull_kv{}", k); }
  // In a ring step, where there are several.
  std::string in_ring(const std::string& stage, int i) const {
    return p_.R() > 1 ? fmt::format("{}_ring{}", stage, i) : stage;
  }
  bool last(int k, int i) const { return k == p_.T() - 1 && i == p_.R() - 1; }

  int first_fetched() const { return p_.U() > 1 ? 0 : 1; }

  // Whether one call takes queries and keys of all classes, the latter in as many parts as fit.
  bool choose_parts() {
    std::vector<int> wanted;  // [T - 1]
    const bool may = p_.T() > 1 && p_.R() == 1;
    for (int k = 1; k < p_.T(); ++k) wanted.push_back(may ? p_.parts_of_class(k) : 1);
    return AttentionPieces::fit_parts(wanted, [&](const std::vector<int>& parts) {
      make_up_buffers(parts);
      queries_ = query_chunks();
      return may && takes_at_once();
    });
  }

  // Values that nobody has made, where `open` puts those that are; `parts` of classes 1..T-1.
  void make_up_buffers(const std::vector<int>& parts) {
    ValueId next = kNoValue;
    for (int k = first_fetched(); k < p_.T(); ++k) {
      q_[k] = --next;
      keys_[k].k.clear(), keys_[k].v.clear();
      for (int n = 0; n < (k > 0 ? parts[k - 1] : 1); ++n) {
        keys_[k].k.push_back(--next);
        keys_[k].v.push_back(--next);
      }
    }
  }

  std::vector<Chunk> query_chunks() const {
    std::vector<Chunk> chunks;
    for (int k = 0; k < p_.T(); ++k) chunks.push_back(p_.q_chunk(k, q_[k]));
    return chunks;
  }

  // All ranks' q, k and v are made; what pulls fill is opened. Ring neighbours read class 0 in
  // place where no part of it had to be fetched.
  void open() {
    std::vector<ValueType> types;
    const int first = first_fetched();
    for (int k = first; k < p_.T(); ++k) {
      types.push_back(p_.q_buffer(k));
      const int count = static_cast<int>(keys_[k].k.size());
      for (int n = 0; n < count; ++n) types.insert(types.end(), 2, p_.kv_buffer(k, {n, count}));
    }
    const size_t ring = types.size();
    const std::vector<int> steps = first == 1 ? read_at_source() : std::vector<int>{};
    types.insert(types.end(), 2 * steps.size(), p_.ring_buffer(0));
    opened_ = p_.open({in_.q, in_.k, in_.v}, types);
    size_t n = 0;
    for (int k = first; k < p_.T(); ++k) {
      q_[k] = opened_.buffers[n++];
      for (size_t i = 0; i < keys_[k].k.size(); ++i) {
        keys_[k].k[i] = opened_.buffers[n++];
        keys_[k].v[i] = opened_.buffers[n++];
      }
    }
    set_ring(keys_[0], steps, std::span(opened_.buffers).subspan(ring));
  }

  // Ring steps whose keys no rank hands on.
  std::vector<int> read_at_source() const {
    std::vector<int> steps;
    for (int i = 1; i < p_.R(); ++i) {
      if (p_.fetched(i).empty()) steps.push_back(i);
    }
    return steps;
  }

  static void set_ring(KeyClass& keys, const std::vector<int>& steps,
                       std::span<const ValueId> opened) {
    for (size_t n = 0; n < steps.size(); ++n) {
      keys.ring_k[steps[n] - 1] = opened[2 * n];
      keys.ring_v[steps[n] - 1] = opened[2 * n + 1];
    }
  }

  // A ring group meets: these values are ready, and buffers of these steps are open.
  void meet(int k, const std::vector<ValueId>& ready, const std::vector<int>& steps) {
    const auto opened =
        p_.sync({.axis = "ring",
                 .tag = kRingTag,
                 .kept = ready,
                 .closed = {},
                 .opens = std::vector<ValueType>(2 * steps.size(), p_.ring_buffer(k))});
    set_ring(keys_[k], steps, opened);
  }

  // Everything is asked for at once; queries first, since keys are twice as much.
  void pull() {
    if (p_.U() > 1) {
      p_.stage(queries_stage(0));
      p_.pull_q(0, q_[0]);
      p_.pull_kv(0, keys_[0].k[0], keys_[0].v[0]);
    }
    for (int k = 1; k < p_.T(); ++k) {
      p_.stage(queries_stage(k));
      p_.pull_q(k, q_[k]);
    }
    for (int k = 1; k < p_.T(); ++k) {
      const KeyClass& keys = keys_[k];
      const int count = static_cast<int>(keys.k.size());
      for (int n = 0; n < count; ++n) {
        p_.stage(count > 1 ? fmt::format("{}_part{}", keys_stage(k), n) : keys_stage(k));
        p_.pull_kv(k, keys.k[n], keys.v[n], {n, count});
      }
    }
  }

  // The ring neighbours have fetched class k: their buffers may be read.
  void meet_ring(int k) {
    const KeyClass& keys = keys_[k];
    if (p_.R() == 1 || keys.k.empty() || keys.ring_k[0] != kNoValue) return;
    meet(k, {keys.k[0], keys.v[0]}, read_at_source());
  }

  // Keys that step i hands on have been fetched: they may be read, by it and by later steps.
  void meet_to_hand_on(int k, int i) {
    KeyClass& keys = keys_[k];
    if (keys.ring_k[i - 1] != kNoValue) return;
    const auto handed_on = [&](int step) {
      return std::ranges::count(keys.handed_on, keys.ring_k[step - 1]) > 0;
    };
    std::vector<ValueId> ready;
    for (int step : p_.fetched(i)) {
      if (handed_on(step)) continue;
      ready.insert(ready.end(), {keys.ring_k[step - 1], keys.ring_v[step - 1]});
    }
    keys.handed_on.insert(keys.handed_on.end(), ready.begin(), ready.end());
    std::vector<int> steps;
    for (int j = i; j < p_.R(); ++j) {
      if (keys.ring_k[j - 1] == kNoValue && std::ranges::all_of(p_.fetched(j), handed_on)) {
        steps.push_back(j);
      }
    }
    meet(k, ready, steps);
  }

  void pull_ring(int k, int i) {
    const KeyClass& keys = keys_[k];
    meet_to_hand_on(k, i);
    p_.pull_ring_once(k, i, keys.whole_k(), keys.whole_v(), keys.ring_k, keys.ring_v);
  }

  // The ring steps of class k; `attend` gets each when it is here.
  template <class Attend>
  void ring(int k, Attend&& attend) {
    KeyClass& keys = keys_[k];
    const std::string stage = k == 0 ? queries_stage(0) : keys_stage(k);
    p_.stage(stage);
    meet_ring(k);
    keys.chunks.reserve(static_cast<size_t>(p_.R()));
    for (int i = 0; i < p_.R(); ++i) {
      p_.stage(in_ring(stage, i));
      if (i + 1 < p_.R()) pull_ring(k, i + 1);
      keys.chunks.push_back(i == 0 ? p_.kv_chunk(k, keys.whole_k(), keys.whole_v())
                                   : p_.ring_chunk(k, i, keys.ring_k[i - 1], keys.ring_v[i - 1]));
      attend(i, keys.chunks.back());
    }
  }

  void first_class() {
    const std::vector<const Chunk*> q{&queries_[0], &joint_q_};
    ring(0, [&](int i, const Chunk& chunk) {
      std::vector<const Chunk*> kv{&chunk};
      if (i == 0) kv.insert(kv.begin(), &joint_kv_);
      const ValueId send = p_.attend(q, kv, i == 0, last(0, i) ? &opened_.results : nullptr);
      if (!last(0, i)) return;
      p_.push_results(opened_.results, q, send, true);
    });
  }

  void later_queries(int k) {
    std::vector<const Chunk*> kv{&joint_kv_};
    for (const Chunk& chunk : keys_[0].chunks) kv.push_back(&chunk);
    p_.stage(queries_stage(k));
    p_.attend({&queries_[k]}, kv, true);
  }

  void later_keys(int k) {
    std::vector<const Chunk*> q{&joint_q_};
    for (int n = 1; n < p_.T(); ++n) q.push_back(&queries_[n]);
    ring(k, [&](int i, const Chunk& chunk) {
      const ValueId send = p_.attend(q, {&chunk}, false, last(k, i) ? &opened_.results : nullptr);
      if (!last(k, i)) return;
      p_.push_results(opened_.results, q, send, true);
    });
  }

  void last_class() {
    std::vector<const Chunk*> kv;
    for (int k = 1; k < p_.T(); ++k) {
      for (const Chunk& chunk : keys_[k].chunks) kv.push_back(&chunk);
    }
    p_.stage("push_o");
    const ValueId send = p_.attend({&queries_[0]}, kv, false, &opened_.results);
    p_.push_results(opened_.results, {&queries_[0]}, send, false);
  }

  void by_stages() {
    std::vector<const Chunk*> states{&joint_q_, &queries_[0]};
    for (int k = 1; k < p_.T(); ++k) states.push_back(&queries_[k]);
    p_.begin_states(states);
    first_class();
    if (p_.T() == 1) return;
    for (int k = 1; k < p_.T(); ++k) later_queries(k);
    for (int k = 1; k < p_.T(); ++k) later_keys(k);
    last_class();
  }

  // One call of all ring steps of the only class, if it takes them.
  bool ring_at_once() {
    if (p_.T() > 1 || p_.R() == 1 || p_.hands_on()) return false;
    KeyClass& keys = keys_[0];
    p_.stage(queries_stage(0));
    meet_ring(0);
    std::vector<Chunk> chunks{p_.kv_chunk(0, keys.whole_k(), keys.whole_v())};
    for (int i = 1; i < p_.R(); ++i) {
      const ValueId k = keys.ring_k[i - 1];
      chunks.push_back(at_stage(p_.ring_chunk(0, i, k, keys.ring_v[i - 1]), k, i));
    }
    const std::vector<const Chunk*> q{&queries_[0], &joint_q_};
    std::vector<const Chunk*> kv{&joint_kv_};
    for (const Chunk& chunk : chunks) kv.push_back(&chunk);
    if (!p_.waits_inside(q, kv)) return false;
    for (int i = 1; i < p_.R(); ++i) {
      p_.stage(in_ring(queries_stage(0), i));
      pull_ring(0, i);
    }
    p_.begin_states({});
    finish(q, kv);
    return true;
  }

  // The call that takes queries and keys as they come. What pulls bring is numbered in their order.
  // Results that have to be sent leave early, under what is left of the call; they are the others'
  // queries' alone.
  struct AtOnce {
    Chunk own;              // queries of class 0
    std::vector<Chunk> q;   // joint, then those of classes 1..T-1
    std::vector<Chunk> kv;  // joint, then each class, by parts
    bool sends = false;
    bool own_late = false;  // what others have of class 0 comes first

    std::vector<const Chunk*> others() const { return pointers({}, q); }
    std::vector<const Chunk*> queries() const { return pointers({&own}, q); }
    std::vector<const Chunk*> keys() const { return pointers({}, kv); }
  };

  AtOnce at_once() const {
    AtOnce call;
    std::vector<const Chunk*> others;
    for (int k = 1; k < p_.T(); ++k) others.push_back(&queries_[k]);
    call.sends = p_.sends(others);
    call.own_late = p_.U() > 1;
    int stage = call.own_late ? 2 : 0;
    call.own = at_stage(queries_[0], q_[0], call.own_late ? 1 : 0);
    call.q.push_back(call.sends ? early(at_stage(joint_q_, in_.joint_q, stage + 1)) : joint_q_);
    for (int k = 1; k < p_.T(); ++k) {
      const Chunk chunk = at_stage(queries_[k], q_[k], ++stage);
      call.q.push_back(call.sends ? early(chunk) : chunk);
    }
    call.kv = {joint_kv_, at_stage(p_.kv_chunk(0, keys_[0].whole_k(), keys_[0].whole_v()),
                                   keys_[0].whole_k(), call.own_late ? 2 : 0)};
    for (int k = 1; k < p_.T(); ++k) {
      const KeyClass& keys = keys_[k];
      const int count = static_cast<int>(keys.k.size());
      for (int n = 0; n < count; ++n) {
        const Chunk part = p_.kv_chunk(k, keys.k[n], keys.v[n], {n, count});
        call.kv.push_back(at_stage(part, keys.k[n], ++stage));
      }
    }
    return call;
  }

  bool takes_at_once() const {
    const AtOnce call = at_once();
    return !p_.sends({&queries_[0]}) && p_.waits_inside(call.queries(), call.keys());
  }

  void attend_at_once() {
    const AtOnce call = at_once();
    p_.begin_states({});
    if (!call.sends) return finish(call.queries(), call.keys());
    p_.stage("attend");
    const ValueId send = p_.attend(call.queries(), call.keys(), true, &opened_.results);
    p_.push_results(opened_.results, call.others(), send, true);
    if (call.own_late) {  // which tells alone
      p_.push_results(opened_.results, {&call.own}, send, false);
    }
  }

  // The call that is all there is for these queries.
  void finish(const std::vector<const Chunk*>& q, const std::vector<const Chunk*>& kv) {
    p_.stage("attend");
    const ValueId send = p_.attend(q, kv, true, &opened_.results);
    p_.push_results(opened_.results, q, send, true);
  }

  AttentionPieces& p_;
  const AttentionInputs& in_;
  std::vector<KeyClass> keys_;  // [T]
  std::vector<ValueId> q_;      // [T] buffers
  std::vector<Chunk> queries_;  // [T]
  Chunk joint_q_, joint_kv_;
  AttentionPieces::Opened opened_;
};

}  // namespace

AttentionOutputs lower_torus(AttentionPieces& p) {
  return Lowering(p).run();
}

}  // namespace braid
