#include <algorithm>

#include "braid/parallel/attention/pieces.h"

// Torus attention (StreamFusion, section 4.3 and Algorithm 1; docs/sequence-parallel.md has a table
// of its parts). For rank (t, u, r), class k is the data of torus group t - k. All data is asked
// for at once, and a single call takes the data in this order:
//   pull Q   queries of class k = 0..T-1 over the keys of class 0, the next queries on their way
//   pull KV  all queries over the keys of class k = 1..T-1, the next keys on their way; keys from
//            other machines come in parts
//   push O   queries of class 0 over the keys of classes 1..T-1 that are left, the other classes'
//            results on their way to their owners
// Inside a class the ring steps follow each other; keys of another machine come to a machine once,
// and ranks hand them on inside. With T = 1 only the first part remains: USP and TAS, which differ
// in the place of their groups. With U = 1 as well, the ring remains, here without passing keys
// round: each rank reads other ranks' keys in place, and between the two meetings of all ranks no
// rank waits for another.
namespace braid {
namespace {

// A class' keys on this rank: the own ring step, then the ring neighbours'.
struct KeyClass {
  // By the parts of the class' arrival; none if all rows are the rank's own.
  std::vector<KvBuffer> fetched;
  std::vector<std::vector<KvBuffer>> ring;  // [R - 1], by parts
  std::vector<ValueId> handed_on;           // ring steps' buffers that other ranks read

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
    choose_parts();
    open();
    pull();
    attend();
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
  static std::string queries_name(int k) { return fmt::format("pull_q{}", k); }
  static std::string keys_name(int k) { return fmt::format("pull_kv{}", k); }
  std::string ring_name(int k, int i) const {
    if (is_ring()) return fmt::format("ring{}", i);
    return fmt::format("{}_ring{}", keys_name(k), i);
  }
  // Names a part, if there are several.
  void name(const std::string& name, KeyPart part) {
    p_.scope(part.count > 1 ? fmt::format("{}_part{}", name, part.index) : name);
  }

  int first_fetched() const { return p_.U() > 1 ? 0 : 1; }

  // Keys come in as many parts as fit: keys of classes 1..T-1, or of ring steps 1..R-1 in the only
  // class. Keys that ring neighbours read come whole, as do keys in USP and TAS: as published,
  // since ring and torus are measured against these modes.
  void choose_parts() {
    const bool torus = p_.T() > 1;
    const bool whole = torus ? p_.R() > 1 : p_.hands_on() || !is_ring();
    std::vector<int> wanted;
    for (int n = 1; n < (torus ? p_.T() : p_.R()); ++n) {
      wanted.push_back(whole ? 1 : torus ? p_.parts_of_class(n) : p_.parts_of_ring(n));
    }
    plan(p_.fit_parts(wanted, [&](const std::vector<int>& tried) {
      plan(tried);
      return p_.num_segments(pointers(ordered().kv));
    }));
  }

  // Plans the buffers of all pulls; `parts` as numbered by choose_parts().
  void plan(const std::vector<int>& parts) {
    keys_.assign(p_.T(), {});
    q_.assign(p_.T(), nullptr);
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
      p_.scope(queries_name(0));
      p_.pull_q(0, *q_[0]);
      p_.scope(keys_name(0));
      p_.pull_kv(0, keys_[0].whole());
    }
    for (int k = 1; k < p_.T(); ++k) {
      p_.scope(queries_name(k));
      p_.pull_q(k, *q_[k]);
    }
    for (int k = 1; k < p_.T(); ++k) {
      const int count = static_cast<int>(keys_[k].fetched.size());
      for (int n = 0; n < count; ++n) {
        name(keys_name(k), {n, count});
        p_.pull_kv(k, keys_[k].fetched[n], {n, count});
      }
    }
    for (int k = 0; k < p_.T(); ++k) pull_ring(k);
  }

  // The ring neighbours have fetched class k: their buffers may be read.
  void meet_ring(int k) {
    const KeyClass& keys = keys_[k];
    if (p_.R() == 1 || keys.held() == nullptr || keys.is_open(1)) return;
    p_.scope(keys_name(k));
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

  void pull_ring(int k) {
    meet_ring(k);
    for (int i = 1; i < p_.R(); ++i) {
      const int count = static_cast<int>(keys_[k].ring[i - 1].size());
      for (int n = 0; n < count; ++n) {
        name(ring_name(k, i), {n, count});
        meet_to_hand_on(k, i);
        p_.pull_ring(k, i, keys_[k].held(), keys_[k].ring, {n, count});
      }
    }
  }

  // Queries and keys in the order of their phases: data in place, then by pulls. Results to be sent
  // are part 0 and leave under the rest of the call: other ranks' results and the prefix' alone.
  struct Ordered {
    std::vector<Chunk> q;   // class 0, joint, then classes 1..T-1
    std::vector<Chunk> kv;  // joint, then each class by parts, with ring steps by parts
    bool sends = false;
  };

  Ordered ordered() const {
    Ordered call;
    std::vector<const Chunk*> others;
    for (int k = 1; k < p_.T(); ++k) others.push_back(&queries_[k]);
    call.sends = p_.sends(others);
    int phase = 0;
    const auto append = [&](const std::vector<KvBuffer>& parts, auto&& chunk_of) {
      const int count = static_cast<int>(parts.size());
      for (int n = 0; n < count; ++n) {
        call.kv.push_back(at_phase(chunk_of(parts[n], KeyPart{n, count}), parts[n].k, ++phase));
      }
    };
    const auto append_ring = [&](int k) {
      for (int i = 1; i < p_.R(); ++i) {
        append(keys_[k].ring[i - 1],
               [&](const KvBuffer& kv, KeyPart part) { return p_.ring_chunk(k, i, kv, part); });
      }
    };
    call.q.push_back(queries_[0]);
    call.kv = {joint_kv_, p_.kv_chunk(0, keys_[0].whole())};
    if (p_.T() > 1 && p_.U() > 1) {  // other ranks' rows of class 0 come first
      call.q[0] = at_phase(call.q[0], q_[0], ++phase);
      call.kv[1] = at_phase(call.kv[1], keys_[0].whole().k, ++phase);
    }
    append_ring(0);
    const bool sends_joint = call.sends || (is_ring() && p_.machines() > 1);
    const int joint_phase = p_.T() > 1 ? phase + 1 : 1;
    call.q.push_back(sends_joint ? in_part(at_phase(joint_q_, &p_.joint_q(), joint_phase), 0)
                                 : joint_q_);
    for (int k = 1; k < p_.T(); ++k) {
      const Chunk chunk = at_phase(queries_[k], q_[k], ++phase);
      call.q.push_back(call.sends ? in_part(chunk, 0) : chunk);
    }
    for (int k = 1; k < p_.T(); ++k) {
      append(keys_[k].fetched,
             [&](const KvBuffer& kv, KeyPart part) { return p_.kv_chunk(k, kv, part); });
      append_ring(k);
    }
    return call;
  }

  static std::vector<const Chunk*> pointers(const std::vector<Chunk>& chunks) {
    std::vector<const Chunk*> all;
    for (const Chunk& chunk : chunks) all.push_back(&chunk);
    return all;
  }

  void attend() {
    const Ordered call = ordered();
    const std::vector<const Chunk*> q = pointers(call.q);
    p_.scope("attend");
    const auto sent = p_.attend(q, pointers(call.kv), results_);
    p_.push_results(results_, call.sends ? std::vector(q.begin() + 1, q.end()) : q, sent.send,
                    true);
    if (call.sends) p_.push_results(results_, {q[0]}, sent.rest, false);
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
