#include "braid/kernels/cpu/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <numbers>

#include "braid/base/error.h"
#include "braid/kernels/cpu/attention/dual_decode.h"
#include "braid/kernels/cpu/attention/kernels.h"

namespace braid::cpu {
namespace {

constexpr int64_t kChunkKeys = 64;
constexpr int64_t kMaxChunks = 64;

// A decode query's KV range is cut by the query's length alone, for any team: the result does not
// depend on which thread computes which chunk.
struct DecodePlan {
  int64_t begin = 0;  // first visible key
  int64_t end = 0;
  int64_t chunk_keys = 0;
  int64_t chunks = 0;
};

DecodePlan decode_plan(int64_t kv_len, int64_t window) {
  DecodePlan plan;
  plan.begin = window > 0 ? std::max<int64_t>(0, kv_len - window) : 0;
  plan.end = kv_len;
  const int64_t keys = plan.end - plan.begin;
  plan.chunk_keys = std::max(kChunkKeys, round_up(ceil_div(keys, kMaxChunks), kChunkKeys));
  plan.chunks = ceil_div(keys, plan.chunk_keys);
  return plan;
}

int64_t queries_of(const AttentionParams& p, int64_t s) {
  return p.q_start[s + 1] - p.q_start[s];
}

// The query heads of KV head j.
Range heads_of(const AttentionParams& p, int64_t j) {
  return {std::max<int64_t>(0, j * p.group - p.head_offset),
          std::min(p.q_heads, (j + 1) * p.group - p.head_offset)};
}

KvHead kv_head(const AttentionParams& p, int64_t s, int64_t j) {
  const int64_t offset = bytes_of(p.cache.dtype, j * p.cache.head_dim);
  KvHead kv;
  kv.k = static_cast<const std::byte*>(p.cache.k) + offset;
  kv.v = static_cast<const std::byte*>(p.cache.v) + offset;
  kv.dtype = p.cache.dtype;
  kv.pages = p.page_table + s * p.max_pages;
  kv.page_size = p.cache.page_size;
  kv.row_stride = p.cache.kv_heads * p.cache.head_dim;
  kv.head_dim = p.cache.head_dim;
  return kv;
}

ScoreSpec score_spec(const AttentionParams& p) {
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  if (p.softcap > 0) return {p.scale / p.softcap, p.softcap * kLog2e};
  return {p.scale * kLog2e, 0};
}

// Scratch: the counter of handed-out prefill blocks; then for each thread the states of the
// sequence shared with later threads; then the thread's own data: states of an unshared sequence,
// or a prefill block.
struct Scratch {
  static constexpr int64_t kHeaderBytes = 64;
  int64_t states;  // floats for a sequence's decode states
  int64_t private_floats;
  std::byte* base;
  int threads;

  Scratch(int64_t q_heads, int64_t group, int64_t head_dim, int team, std::byte* memory)
      : states(kMaxChunks * q_heads * state_floats(head_dim)),
        private_floats(std::max(
            states, round_up(prefill_scratch_floats(std::max(kPrefillRows, group), head_dim), 16))),
        base(memory),
        threads(team) {}

  int64_t bytes() const {
    return kHeaderBytes + threads * (states + private_floats) * static_cast<int64_t>(sizeof(float));
  }
  float* floats() const { return reinterpret_cast<float*>(base + kHeaderBytes); }
  std::atomic_ref<int64_t> next_block() const {
    return std::atomic_ref<int64_t>(*reinterpret_cast<int64_t*>(base));
  }
  float* shared_states(int thread) const { return floats() + thread * states; }
  float* private_to(int thread) const {
    return floats() + threads * states + thread * private_floats;
  }
};

// The thread whose even_part of n holds item i.
int holder(int64_t n, int threads, int64_t i) {
  const int64_t base = n / threads;
  const int64_t extra = n % threads;
  const int64_t big = extra * (base + 1);
  return static_cast<int>(i < big ? i / (base + 1) : extra + (i - big) / base);
}

class Decode {
 public:
  Decode(const AttentionParams& p, const Team& team, Isa isa, const Scratch& scratch)
      : p_(p),
        team_(team),
        scratch_(scratch),
        chunk_(pick_isa(isa, BRAID_EACH_ISA(attention_decode_chunk))),
        merge_(pick_isa(isa, BRAID_EACH_ISA(attention_decode_merge))) {
    for_each([&](int64_t, const DecodePlan& plan, int64_t) { items_ += items_of(plan); });
    for_each(
        [&](int64_t, const DecodePlan& plan, int64_t first) { shared_ |= is_shared(plan, first); });
  }

  // Whether any sequence belongs to several threads: a barrier and merge_shared() must then follow.
  bool shared() const { return shared_; }

  // This thread's chunks; sequences that belong to this thread alone are finished.
  void run() {
    const Range mine = team_.share(items_);
    for_each([&](int64_t s, const DecodePlan& plan, int64_t first) {
      const int64_t begin = std::max<int64_t>(0, mine.begin - first);
      const int64_t end = std::min(items_of(plan), mine.end - first);
      if (begin >= end) return;
      const bool shared = is_shared(plan, first);
      float* states = shared ? scratch_.shared_states(holder(items_, team_.count, first))
                             : scratch_.private_to(team_.index);
      for (int64_t item = begin; item < end; ++item) {
        run_item(s, plan, item, item < begin + p_.cache.kv_heads, states);
      }
      if (!shared) merge(s, plan, states, {0, p_.q_heads});
    });
  }

  void merge_shared() {
    for_each([&](int64_t s, const DecodePlan& plan, int64_t first) {
      if (!is_shared(plan, first)) return;
      merge(s, plan, scratch_.shared_states(holder(items_, team_.count, first)),
            team_.share(p_.q_heads));
    });
  }

 private:
  int64_t items_of(const DecodePlan& plan) const { return plan.chunks * p_.cache.kv_heads; }
  bool is_shared(const DecodePlan& plan, int64_t first) const {
    return team_.count > 1 && holder(items_, team_.count, first) !=
                                  holder(items_, team_.count, first + items_of(plan) - 1);
  }

  // f(sequence, plan, number of the first item), for each sequence with a single query.
  template <class F>
  void for_each(F&& f) const {
    int64_t first = 0;
    for (int64_t s = 0; s < p_.sequences; ++s) {
      if (queries_of(p_, s) != 1) continue;
      const DecodePlan plan = decode_plan(p_.kv_len[s], p_.window);
      f(s, plan, first);
      first += items_of(plan);
    }
  }

  // Item = (chunk, KV head), the head innermost: neighbours in memory.
  void run_item(int64_t s, const DecodePlan& plan, int64_t item, bool cold, float* states) const {
    const int64_t i = item / p_.cache.kv_heads;
    const int64_t j = item % p_.cache.kv_heads;
    const Range heads = heads_of(p_, j);
    if (heads.empty()) return;
    DecodeChunk c;
    c.kv = kv_head(p_, s, j);
    c.score = score_spec(p_);
    c.q = p_.q + (p_.q_start[s] - p_.first_token) * p_.q_stride + heads.begin * p_.cache.head_dim;
    c.heads = static_cast<int>(heads.size());
    c.begin = plan.begin + i * plan.chunk_keys;
    c.end = std::min(plan.end, c.begin + plan.chunk_keys);
    c.cold = cold;
    c.next_end = std::min(plan.end, c.end + kChunkKeys);
    c.state = states + (i * p_.q_heads + heads.begin) * state_floats(p_.cache.head_dim);
    if (!p_.dual) return chunk_(c);
    decode_dual(*p_.dual, p_.frequencies, p_.kv_len[s] - 1, c, chunk_, [&](auto run) {
      for (int64_t key = c.begin, end = 0; key < c.end; key = end) {
        run(key, end = std::min(c.end, p_.dual->chunk_end(key)), key);
      }
    });
  }

  void merge(int64_t s, const DecodePlan& plan, const float* states, Range heads) const {
    const int64_t stride = state_floats(p_.cache.head_dim);
    DecodeMerge m;
    m.state = states + heads.begin * stride;
    m.chunk_stride = p_.q_heads * stride;
    m.chunks = plan.chunks;
    m.heads = heads.size();
    m.head_dim = p_.cache.head_dim;
    m.out =
        p_.out + (p_.q_start[s] - p_.first_token) * p_.out_stride + heads.begin * p_.cache.head_dim;
    merge_(m);
  }

  const AttentionParams& p_;
  const Team& team_;
  const Scratch& scratch_;
  void (*chunk_)(const DecodeChunk&);
  void (*merge_)(const DecodeMerge&);
  int64_t items_ = 0;
  bool shared_ = false;
};

class Prefill {
 public:
  Prefill(const AttentionParams& p, const Team& team, Isa isa, const Scratch& scratch)
      : p_(p),
        block_(pick_isa(isa, BRAID_EACH_ISA(attention_prefill_block))),
        scratch_(scratch.private_to(team.index)),
        next_(scratch.next_block()),
        block_queries_(std::max<int64_t>(1, kPrefillRows / p.group)) {
    for (int64_t s = 0; s < p_.sequences; ++s) blocks_ += blocks_of(s);
  }

  bool empty() const { return blocks_ == 0; }

  // Blocks go to whoever is free, within a sequence the last (longest) first.
  void run() {
    int64_t s = 0;
    int64_t first = 0;  // number of s' first block
    for (;;) {
      const int64_t b = next_.fetch_add(1, std::memory_order_relaxed);
      if (b >= blocks_) return;
      while (b >= first + blocks_of(s)) first += blocks_of(s++);
      run_block(s, b - first);
    }
  }

 private:
  int64_t blocks_of(int64_t s) const {
    const int64_t n = queries_of(p_, s);
    return n > 1 ? ceil_div(n, block_queries_) * p_.cache.kv_heads : 0;
  }

  void run_block(int64_t s, int64_t index) const {
    const int64_t n = queries_of(p_, s);
    const int64_t j = index % p_.cache.kv_heads;
    const int64_t from_last = index / p_.cache.kv_heads;
    const int64_t begin = (ceil_div(n, block_queries_) - 1 - from_last) * block_queries_;
    const Range heads = heads_of(p_, j);
    if (heads.empty()) return;
    const int64_t t = p_.q_start[s] - p_.first_token + begin;
    PrefillBlock b;
    b.kv = kv_head(p_, s, j);
    b.score = score_spec(p_);
    b.q = p_.q + t * p_.q_stride + heads.begin * p_.cache.head_dim;
    b.out = p_.out + t * p_.out_stride + heads.begin * p_.cache.head_dim;
    b.q_stride = p_.q_stride;
    b.out_stride = p_.out_stride;
    b.queries = std::min(n, begin + block_queries_) - begin;
    b.heads = heads.size();
    b.position = p_.kv_len[s] - n + begin;
    b.window = p_.window;
    b.dual = p_.dual;
    b.frequencies = p_.frequencies;
    b.scratch = scratch_;
    block_(b);
  }

  const AttentionParams& p_;
  void (*block_)(const PrefillBlock&);
  float* scratch_;
  std::atomic_ref<int64_t> next_;
  const int64_t block_queries_;
  int64_t blocks_ = 0;
};

}  // namespace

int64_t attention_scratch_bytes(int64_t q_heads, int64_t group, int64_t head_dim, int threads) {
  return Scratch(q_heads, group, head_dim, threads, nullptr).bytes();
}

void attention(const AttentionParams& p, const Team& team, Isa isa) {
  const KvCache& cache = p.cache;
  BRAID_CHECK(is_float(cache.dtype), "dtype {}", name(cache.dtype));
  BRAID_CHECK(cache.head_dim % 8 == 0 && cache.head_dim > 0 && cache.head_dim <= kMaxHeadDim,
              "head_dim {}", cache.head_dim);
  BRAID_CHECK(
      p.group > 0 && p.head_offset >= 0 && p.q_heads + p.head_offset <= cache.kv_heads * p.group,
      "q_heads {} head_offset {} group {} kv_heads {}", p.q_heads, p.head_offset, p.group,
      cache.kv_heads);
  const Scratch scratch(p.q_heads, p.group, cache.head_dim, team.count, p.scratch);
  Decode decode(p, team, isa, scratch);
  Prefill prefill(p, team, isa, scratch);

  if (team.index == 0) scratch.next_block().store(0, std::memory_order_relaxed);
  decode.run();
  if (decode.shared() || !prefill.empty()) team.barrier();
  if (decode.shared()) decode.merge_shared();
  if (!prefill.empty()) prefill.run();
}

}  // namespace braid::cpu
