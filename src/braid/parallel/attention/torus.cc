#include <algorithm>

#include "braid/parallel/attention/pieces.h"

// Torus attention (StreamFusion, section 4.3 and Algorithm 1; docs/sequence-parallel.md has a table
// of its parts). For rank (t, u, r), class k is the data of torus group t - k:
//   pull Q   queries of class k = 0..T-1 over the keys of class 0, the next queries on their way
//   pull KV  queries of classes 1..T-1 over the keys of class k = 1..T-1, the next keys on their
//            way
//   push O   queries of class 0 over the keys of classes 1..T-1, the other classes' results on
//            their way to their owners
// If a kernel waits for queries and keys inside, all parts are a single call (attend_at_once), and
// keys from other machines come in parts. Inside a part the ring steps follow each other, with the
// next step's keys on their way; keys of another machine come to a machine once, and ranks hand
// them on inside. With T = 1 only the first part remains: USP and TAS, which differ in the place of
// their groups. With U = 1 as well, the ring remains, here without passing keys round: each rank
// reads other ranks' keys in place, and between the two meetings of all ranks no rank waits for
// another.
namespace braid {
namespace {

// A class' keys on this rank: the own ring step, then the ring neighbours'.
struct KeyClass {
  // By the parts of the class' arrival: several for a call that waits inside; none if all rows are
  // the rank's own.
  std::vector<KvBuffer> fetched;
  std::vector<std::vector<KvBuffer>> ring;  // [R - 1], by parts
  std::vector<ValueId> handed_on;           // ring steps' buffers that other ranks read
  std::vector<Chunk> chunks;                // [R]

  const KvBuffer* held() const { return fetched.empty() ? nullptr : fetched.data(); }
  KvBuffer whole() const { return fetched.empty() ? KvBuffer{} : fetched[0]; }
  // The buffers of ring step i are open.
  bool is_open(int i) const { return ring[i - 1][0].k->value != kNoValue; }
};

// Both buffers of each.
void add(std::vector<Buffer*>& buffers, const std::vector<KvBuffer>& kv) {
  for (const KvBuffer& one : kv) buffers.insert(buffers.end(), {one.k, one.v});
}

class Lowering {
 public:
  explicit Lowering(AttentionPieces& p) : p_(p), in_(p.inputs()) {}

  AttentionOutputs run() {
    joint_q_ = p_.joint_q_chunk();
    joint_kv_ = p_.joint_kv_chunk();
    const bool at_once = choose_parts();
    open();
    pull();
    if (p_.T() == 1 && !p_.hands_on()) meet_ring(0);
    if (at_once) {
      attend_at_once();
    } else {
      by_stages();
    }
    std::vector<ValueId> kept{in_.q, in_.k, in_.v};
    for (const KeyClass& keys : keys_) {
      if (p_.R() > 1 && keys.held() != nullptr) {
        kept.insert(kept.end(), {keys.held()->k->value, keys.held()->v->value});
      }
      kept.insert(kept.end(), keys.handed_on.begin(), keys.handed_on.end());
    }
    return p_.close(results_, kept);
  }

 private:
  bool is_ring() const { return p_.mode() == SpMode::ring; }
  // Keys come whole and no result leaves early: USP and TAS as published, which ring and torus are
  // measured against.
  bool as_published() const { return p_.T() == 1 && !is_ring(); }

  // Stages 1 and 2 of the derivation; the third is "push_o".
  static std::string queries_stage(int k) { return fmt::format("pull_q{}", k); }
  static std::string keys_stage(int k) { return fmt::format("pull_kv{}", k); }
  // The name in a ring step, if there are several.
  std::string in_ring(int k, int i) const {
    if (is_ring()) return fmt::format("ring{}", i);
    const std::string stage = k == 0 ? queries_stage(0) : keys_stage(k);
    return p_.R() > 1 ? fmt::format("{}_ring{}", stage, i) : stage;
  }
  // Names a part, if there are several.
  void stage(const std::string& name, KeyPart part) {
    p_.stage(part.count > 1 ? fmt::format("{}_part{}", name, part.index) : name);
  }
  bool last(int k, int i) const { return k == p_.T() - 1 && i == p_.R() - 1; }

  int first_fetched() const { return p_.U() > 1 ? 0 : 1; }

  // Whether a single call takes queries and keys of all classes, or all ring steps of the only
  // class, in as many parts as fit: parts of the classes 1..T-1, or of the ring steps 1..R-1.
  bool choose_parts() {
    const bool may = p_.T() > 1 ? p_.R() == 1 : p_.R() > 1 && !p_.hands_on();
    const bool parts = may && !as_published();
    std::vector<int> wanted;
    for (int n = 1; n < (p_.T() > 1 ? p_.T() : p_.R()); ++n) {
      wanted.push_back(!parts ? 1 : p_.T() > 1 ? p_.parts_of_class(n) : p_.parts_of_ring(n));
    }
    return AttentionPieces::fit_parts(wanted, [&](const std::vector<int>& tried) {
      plan(tried);
      return may && takes_at_once();
    });
  }

  // Plans the buffers of all pulls; `parts` as numbered by choose_parts().
  void plan(const std::vector<int>& parts) {
    keys_.assign(static_cast<size_t>(p_.T()), {});
    q_.assign(static_cast<size_t>(p_.T()), nullptr);
    for (int k = first_fetched(); k < p_.T(); ++k) {
      q_[k] = p_.plan(p_.q_buffer(k));
      const int count = k > 0 ? parts[k - 1] : 1;
      for (int n = 0; n < count; ++n) {
        keys_[k].fetched.push_back(p_.plan_kv(p_.kv_buffer(k, {n, count})));
      }
    }
    for (int k = 0; k < p_.T(); ++k) {
      for (int i = 1; i < p_.R(); ++i) {
        const int count = p_.T() == 1 ? parts[i - 1] : 1;
        std::vector<KvBuffer>& step = keys_[k].ring.emplace_back();
        for (int n = 0; n < count; ++n) {
          step.push_back(p_.plan_kv(p_.ring_buffer(k, {n, count})));
        }
      }
    }
    queries_.clear();
    for (int k = 0; k < p_.T(); ++k) queries_.push_back(p_.q_chunk(k, q_[k]));
  }

  // All ranks' q, k and v are made; pulls' buffers are opened. Ring neighbours read class 0 in
  // place, unless a part of class 0 had to be fetched.
  void open() {
    std::vector<Buffer*> buffers;
    for (int k = first_fetched(); k < p_.T(); ++k) {
      buffers.push_back(q_[k]);
      add(buffers, keys_[k].fetched);
    }
    for (int i : first_fetched() == 1 ? read_at_source() : std::vector<int>{}) {
      add(buffers, keys_[0].ring[i - 1]);
    }
    results_ = p_.open({in_.q, in_.k, in_.v}, buffers);
  }

  // Ring steps whose keys no rank hands on.
  std::vector<int> read_at_source() const {
    std::vector<int> steps;
    for (int i = 1; i < p_.R(); ++i) {
      if (p_.fetched(i).empty()) steps.push_back(i);
    }
    return steps;
  }

  // A ring group meets: these values are ready, and these steps' buffers are open.
  void meet(int k, const std::vector<ValueId>& ready, const std::vector<int>& steps) {
    std::vector<Buffer*> buffers;
    for (int i : steps) add(buffers, keys_[k].ring[i - 1]);
    p_.sync({.axis = "ring", .tag = kRingTag, .kept = ready, .closed = {}, .opens = buffers});
  }

  // Everything is asked for at once; queries first, since keys are twice as much.
  void pull() {
    if (p_.U() > 1) {
      p_.stage(queries_stage(0));
      p_.pull_q(0, *q_[0]);
      p_.pull_kv(0, keys_[0].whole());
    }
    for (int k = 1; k < p_.T(); ++k) {
      p_.stage(queries_stage(k));
      p_.pull_q(k, *q_[k]);
    }
    for (int k = 1; k < p_.T(); ++k) {
      const int count = static_cast<int>(keys_[k].fetched.size());
      for (int n = 0; n < count; ++n) {
        stage(keys_stage(k), {n, count});
        p_.pull_kv(k, keys_[k].fetched[n], {n, count});
      }
    }
  }

  // The ring neighbours have fetched class k: their buffers may be read.
  void meet_ring(int k) {
    const KeyClass& keys = keys_[k];
    if (p_.R() == 1 || keys.held() == nullptr || keys.is_open(1)) return;
    p_.stage(k == 0 ? queries_stage(0) : keys_stage(k));
    meet(k, {keys.held()->k->value, keys.held()->v->value}, read_at_source());
  }

  // Keys for step i to hand on have been fetched: step i and later steps may read them.
  void meet_to_hand_on(int k, int i) {
    KeyClass& keys = keys_[k];
    if (keys.is_open(i)) return;
    const auto handed_on = [&](int step) {
      return std::ranges::count(keys.handed_on, keys.ring[step - 1][0].k->value) > 0;
    };
    std::vector<ValueId> ready;
    for (int step : p_.fetched(i)) {
      if (handed_on(step)) continue;
      const KvBuffer& kv = keys.ring[step - 1][0];
      ready.insert(ready.end(), {kv.k->value, kv.v->value});
    }
    keys.handed_on.insert(keys.handed_on.end(), ready.begin(), ready.end());
    std::vector<int> steps;
    for (int j = i; j < p_.R(); ++j) {
      if (!keys.is_open(j) && std::ranges::all_of(p_.fetched(j), handed_on)) steps.push_back(j);
    }
    meet(k, ready, steps);
  }

  void pull_ring(int k, int i, KeyPart part = {}) {
    meet_to_hand_on(k, i);
    p_.pull_ring(k, i, keys_[k].held(), keys_[k].ring, part);
  }

  // The ring steps of class k; `attend` gets each step after its arrival.
  template <class Attend>
  void ring(int k, Attend&& attend) {
    KeyClass& keys = keys_[k];
    meet_ring(k);
    keys.chunks.reserve(static_cast<size_t>(p_.R()));
    for (int i = 0; i < p_.R(); ++i) {
      p_.stage(in_ring(k, i));
      if (i + 1 < p_.R()) pull_ring(k, i + 1);
      keys.chunks.push_back(i == 0 ? p_.kv_chunk(k, keys.whole())
                                   : p_.ring_chunk(k, i, keys.ring[i - 1][0]));
      attend(i, keys.chunks.back());
    }
  }

  void first_class() {
    const std::vector<const Chunk*> q{&queries_[0], &joint_q_};
    ring(0, [&](int i, const Chunk& chunk) {
      std::vector<const Chunk*> kv{&chunk};
      if (i == 0) kv.insert(kv.begin(), &joint_kv_);
      const ValueId send = p_.attend(q, kv, i == 0, last(0, i) ? &results_ : nullptr);
      if (!last(0, i)) return;
      p_.push_results(results_, q, send, true);
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
      const ValueId send = p_.attend(q, {&chunk}, false, last(k, i) ? &results_ : nullptr);
      if (!last(k, i)) return;
      p_.push_results(results_, q, send, true);
    });
  }

  void last_class() {
    std::vector<const Chunk*> kv;
    for (int k = 1; k < p_.T(); ++k) {
      for (const Chunk& chunk : keys_[k].chunks) kv.push_back(&chunk);
    }
    p_.stage("push_o");
    const ValueId send = p_.attend({&queries_[0]}, kv, false, &results_);
    p_.push_results(results_, {&queries_[0]}, send, false);
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

  // The call that waits for queries and keys inside. Pulls' data is numbered in pull order.
  // Results to be sent leave early, under the rest of the call: other ranks' results and the
  // prefix' alone.
  struct AtOnce {
    Chunk own;              // queries of class 0
    std::vector<Chunk> q;   // joint, then classes 1..T-1
    std::vector<Chunk> kv;  // joint, then each class, by parts, then ring steps, by parts
    bool sends = false;
    bool own_late = false;  // other ranks' rows of class 0 come first

    std::vector<const Chunk*> others() const { return pointers({}, q); }
    std::vector<const Chunk*> queries() const { return pointers({&own}, q); }
    std::vector<const Chunk*> keys() const { return pointers({}, kv); }
  };

  AtOnce at_once() const {
    AtOnce call;
    std::vector<const Chunk*> others;
    for (int k = 1; k < p_.T(); ++k) others.push_back(&queries_[k]);
    call.sends = p_.sends(others);
    call.own_late = p_.T() > 1 && p_.U() > 1;
    const bool early_joint = call.sends || (is_ring() && p_.machines() > 1);
    int stage = call.own_late ? 2 : 0;
    call.own = call.own_late ? at_stage(queries_[0], q_[0], 1) : queries_[0];
    call.q.push_back(early_joint ? early(at_stage(joint_q_, &p_.joint_q(), stage + 1)) : joint_q_);
    for (int k = 1; k < p_.T(); ++k) {
      const Chunk chunk = at_stage(queries_[k], q_[k], ++stage);
      call.q.push_back(call.sends ? early(chunk) : chunk);
    }
    const KvBuffer first = keys_[0].whole();
    call.kv = {joint_kv_, p_.kv_chunk(0, first)};
    if (call.own_late) call.kv[1] = at_stage(call.kv[1], first.k, 2);
    const auto append = [&](const std::vector<KvBuffer>& parts, auto&& chunk_of) {
      const int count = static_cast<int>(parts.size());
      for (int n = 0; n < count; ++n) {
        call.kv.push_back(at_stage(chunk_of(parts[n], KeyPart{n, count}), parts[n].k, ++stage));
      }
    };
    for (int k = 1; k < p_.T(); ++k) {
      append(keys_[k].fetched,
             [&](const KvBuffer& kv, KeyPart part) { return p_.kv_chunk(k, kv, part); });
    }
    for (int i = 1; i < p_.R(); ++i) {
      append(keys_[0].ring[i - 1],
             [&](const KvBuffer& kv, KeyPart part) { return p_.ring_chunk(0, i, kv, part); });
    }
    return call;
  }

  bool takes_at_once() const {
    const AtOnce call = at_once();
    const bool sends_own = p_.T() > 1 && p_.sends({&queries_[0]});
    return !sends_own && p_.waits_inside(call.queries(), call.keys());
  }

  void attend_at_once() {
    for (int i = 1; i < p_.R(); ++i) {
      const int count = static_cast<int>(keys_[0].ring[i - 1].size());
      for (int n = 0; n < count; ++n) {
        stage(in_ring(0, i), {n, count});
        pull_ring(0, i, {n, count});
      }
    }
    const AtOnce call = at_once();
    p_.stage("attend");
    p_.begin_states({});
    const ValueId send = p_.attend(call.queries(), call.keys(), true, &results_);
    p_.push_results(results_, call.sends ? call.others() : call.queries(), send, true);
    if (call.sends && call.own_late) {  // which tells alone
      p_.push_results(results_, {&call.own}, send, false);
    }
  }

  AttentionPieces& p_;
  const AttentionInputs& in_;
  std::vector<KeyClass> keys_;  // [T]
  std::vector<Buffer*> q_;      // [T], null: all queries are this rank's
  std::vector<Chunk> queries_;  // [T]
  Chunk joint_q_, joint_kv_;
  AttentionPieces::Results results_;
};

}  // namespace

AttentionOutputs lower_torus(AttentionPieces& p) {
  return Lowering(p).run();
}

}  // namespace braid
