#pragma once

#include "braid/kernels/cuda/fused_attention/device/batch_product.cuh"
#include "braid/kernels/cuda/fused_attention/device/fused_parts.cuh"
#include "braid/kernels/cuda/relay/device/key_units.cuh"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// The kernel for a fused attention block with up to 16 tokens: SplitToken. Weights are read once,
// for all tokens. Each CTA in a cluster makes some rows of its KV head's q, k and v; all tokens'
// keys are dealt to the cluster. Exchanges take some tokens at a time.
namespace braid::cuda {

// T: the cache's element type. kSets: sets of kFusedSetHeads query heads, each with a read of its
// own of every key.
template <int kD, class T, ExchangePath kPath, int kSets>
class FusedBatch {
  static constexpr int kKeys = relay_keys(kD);
  static constexpr int kPieceRow = kD + 4;

 public:
  __device__ FusedBatch(const FusedArgs& a, uint8_t* smem, const FusedBatchLayout& layout,
                        const FusedBatchShape& shape, const FusedBatchPlan& plan, int live,
                        uint32_t tag)
      : a_(a),
        plan_(plan),
        shape_(shape),
        smem_(smem),
        layout_(layout),
        tokens_(reinterpret_cast<const FusedToken*>(smem + layout.tokens)),
        ring_(smem + layout.ring, reinterpret_cast<uint64_t*>(smem + layout.barriers), a.slots),
        live_(live),
        tag_(tag),
        thread_(threadIdx.x),
        warp_(thread_ / 32),
        exchange_(block_exchange<kPath>(a, smem + layout.inbox, shape.inbox_bytes(),
                                        smem + layout.arrivals, tag + 1)) {}

  // The other warps of the CTA arrive and open, too.
  __device__ void arrive() const { exchange_.arrive(); }

  __device__ void run() {
    a_.a == nullptr ? load_normed() : load_x();
    sync();
    multiply(plan_.rows, plan_.chunks, [&](int tile) {
      return a_.w_f16[FusedHeadRow(plan_.place.head, first_row() + tile * kFusedTileRows,
                                   a_.group * kD, kD)
                          .which];
    });
    sync();
    exchange_.open();
    a_.parts == 1 ? exchange_rows() : pass_rows();
    sync();
    attend();
    sync();
    if (a_.outputs > 0 || a_.parts > 1) set_flow(a_.in_flight_words);
    for (int t = 0; t < live_; t += a_.each) {
      for (int head = 0; head < a_.group; head += a_.heads) {
        const ResultRows rows{t, min(a_.each, live_ - t), head, min(a_.heads, a_.group - head)};
        put_parts(rows);
        const int bytes = rows.count() * kPieceRow * 4;
        const uint8_t* all = exchange_.gather(floats(layout_.part), bytes, ExchangeForm::direct);
        a_.parts == 1 ? put_attended(all, rows) : put_part(all, rows);
      }
    }
    if (a_.parts > 1) put_head<kD>(a_, plan_.place, live_, tag_ + 1);
    if (a_.outputs == 0) return;
    sync();
    load_words();
    sync();
    set_flow(a_.in_flight);
    multiply(plan_.out, plan_.out_chunks, [&](int) { return a_.w_f16[3]; });
    sync();
    put_outputs();
  }

 private:
  // Rows of attention's result in an exchange: n tokens from `first` on, each with `heads` query
  // heads of the KV head from `head` on.
  struct ResultRows {
    int first;
    int n;
    int head;
    int heads;
    __device__ int count() const { return n * heads; }
  };

  __device__ float* floats(int at) const { return reinterpret_cast<float*>(smem_ + at); }
  __device__ uint32_t* x_words() const { return reinterpret_cast<uint32_t*>(smem_ + layout_.x); }
  __device__ T* elems(int at) const { return reinterpret_cast<T*>(smem_ + at); }
  __device__ static T round(float x) {
    if constexpr (std::is_same_v<T, __half>)
      return __float2half_rn(x);
    else
      return __float2bfloat16_rn(x);
  }
  __device__ static void sync() { ptx::named_barrier_sync(1, kFusedThreads); }
  __device__ void set_flow(int copies) const {
    if (thread_ == 0) *reinterpret_cast<volatile int*>(smem_ + layout_.flow) = copies;
  }
  __device__ int first_row() const {
    return plan_.head_tiles.begin(plan_.place.member) * kFusedTileRows;
  }

  template <class IsF16>
  __device__ void multiply(const FusedParts& parts, int chunks, const IsF16& is_f16) {
    const uint8_t* x = smem_ + layout_.x;
    float* sums = floats(layout_.sums);
    a_.tokens <= 8 ? multiply_tiles<8>(ring_, parts, chunks, x, a_.tokens, sums, is_f16)
                   : multiply_tiles<16>(ring_, parts, chunks, x, a_.tokens, sums, is_f16);
  }
  __device__ float sum_of(const FusedParts& parts, int chunks, int row, int token) const {
    return tile_sum(parts, chunks, floats(layout_.sums), shape_.columns(), row, token);
  }

  // Zeros from element `begin` in x on, to the last chunk's end.
  __device__ void clear_x(int begin, int chunks) const {
    const int count = (chunks * kFusedChunk - begin) / 2;
    for (int i = thread_; i < count * live_; i += kFusedThreads) {
      x_words()[batch_x_word(begin / 2 + i % count, i / count, a_.tokens)] = 0;
    }
  }

  // x is (a + b) times the norm's weights; its scale waits until the end.
  __device__ void load_x() const {
    constexpr int kTogether = 2;  // tokens
    const int quads = a_.width / 4;
#pragma unroll 1
    for (int first = 0; first < live_; first += kTogether) {
      float squares[kTogether] = {};
#pragma unroll 4
      for (int i = thread_; i < quads; i += kFusedThreads) {
        const float4 w = __ldg(reinterpret_cast<const float4*>(a_.norm_w) + i);
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          const int token = min(first + j, live_ - 1), at = token * quads + i;
          const float4 s = load_sum(a_, at);
          squares[j] += s.x * s.x + s.y * s.y + s.z * s.z + s.w * s.w;
          *reinterpret_cast<uint2*>(x_words() + batch_x_word(2 * i, token, a_.tokens)) =
              make_uint2(ptx::pack<__nv_bfloat16>(s.x * w.x, s.y * w.y),
                         ptx::pack<__nv_bfloat16>(s.z * w.z, s.w * w.w));
          if (a_.sum != nullptr && blockIdx.x == token % gridDim.x) {
            reinterpret_cast<float4*>(a_.sum)[at] = s;
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
#pragma unroll
        for (int d = 16; d > 0; d /= 2) squares[j] += __shfl_xor_sync(0xffffffff, squares[j], d);
        if (thread_ % 32 == 0 && first + j < live_) {
          floats(layout_.squares)[(first + j) * kFusedWarps + warp_] = squares[j];
        }
      }
    }
    clear_x(a_.width, plan_.chunks);
  }
  __device__ float scale_of(int token) const {
    return a_.a == nullptr ? 1 : norm_scale(a_, floats(layout_.squares) + token * kFusedWarps);
  }

  __device__ void load_normed() const {
    const int lines = a_.width / 8;
#pragma unroll 8
    for (int i = thread_; i < lines * live_; i += kFusedThreads) {
      const int token = i / lines, line = i - token * lines;
      *reinterpret_cast<uint4*>(x_words() + batch_x_word(4 * line, token, a_.tokens)) =
          __ldcg(reinterpret_cast<const uint4*>(a_.normed) + i);
    }
    clear_x(a_.width, plan_.chunks);
  }

  // Rows of q, k and v by exchanges in the cluster, some tokens at a time.
  __device__ void exchange_rows() {
    for (int t = 0; t < live_; t += a_.each) {
      const int n = min(a_.each, live_ - t);
      put_rows(t, n);
      const int bytes = 2 * n * shape_.head_rows;
      make_heads(exchange_.gather(floats(layout_.part), bytes, ExchangeForm::direct), t, n);
    }
  }
  // The same by words between a head's clusters: all tokens' words first.
  __device__ void pass_rows() {
    constexpr int kTogether = 4;  // tokens, with room in the pieces' place
    set_flow(a_.in_flight_words);
    put_rows(0, live_);
    uint8_t* rows = smem_ + layout_.pieces;
    for (int t = 0; t < live_; t += kTogether) {
      const int n = min(kTogether, live_ - t);
      sync();
      load_rows(a_, kD, plan_.place.head, t, n, rows, tag_ + 1);
      sync();
      make_heads(rows, t, n);
    }
    set_flow(a_.in_flight);
  }

  // Passes on this CTA's rows of q, k and v of some tokens: [n, head_rows], or as words.
  __device__ void put_rows(int token, int n) const {
    auto* to = reinterpret_cast<__nv_bfloat16*>(smem_ + layout_.part);
    const int rows = plan_.num_tiles * kFusedTileRows;
    for (int i = thread_; i < n * rows; i += kFusedThreads) {
      const int t = i / rows, row = i - t * rows;
      const FusedHeadRow at(plan_.place.head, first_row() + row, a_.group * kD, kD);
      const float* biases = a_.bias[at.which];
      const float bias = biases == nullptr ? 0.f : __ldg(biases + at.row);
      const __nv_bfloat16 x = __float2bfloat16_rn(
          sum_of(plan_.rows, plan_.chunks, row, token + t) * scale_of(token + t) + bias);
      if (a_.parts == 1) {
        to[t * shape_.head_rows + row] = x;
      } else {
        put_row(a_, kD, plan_.place.head, token + t, first_row() + row, x, tag_ + 1);
      }
    }
    // Tables of turns come with their tokens.
    for (int t = token + warp_; t < token + n; t += kFusedWarps) {
      put_turns(a_, __ldg(a_.position + t), floats(layout_.turns) + t * 128, thread_ % 32, 32);
    }
  }

  // Heads of q and the new keys, normed and turned by their positions, and the new values.
  __device__ void make_heads(const uint8_t* gathered, int first, int n) const {
    const int stride = (2 * n * shape_.head_rows + 15) / 16 * 16;
    const int roles = a_.group + 2;
#pragma unroll 1
    for (int i = warp_; i < n * roles; i += kFusedWarps) {
      const int token = first + i / roles, role = i % roles;
      const auto raw = [&](int e) {
        const int row = role * kD + e;
        if (a_.parts > 1) {
          const auto* rows = reinterpret_cast<const __nv_bfloat16*>(gathered);
          return __bfloat162float(rows[(token - first) * roles * kD + row]);
        }
        const int rank = plan_.head_tiles.owner(row / kFusedTileRows);
        const int at = row - plan_.head_tiles.begin(rank) * kFusedTileRows;
        return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(
            gathered + rank * stride)[(token - first) * shape_.head_rows + at]);
      };
      const bool is_q = role<a_.group, is_v = role> a_.group;
      const int slot = __ldg(a_.slot + token);
      const bool writes =
          plan_.place.member == token % plan_.place.members && slot >= 0 && slot < a_.num_slots;
      T* to = is_q ? elems(layout_.q) + (token * a_.group + role) * kD
                   : elems(layout_.fresh) + (2 * token + is_v) * kD;
      T* cache = reinterpret_cast<T*>(is_v ? a_.cache_v : a_.cache_k) +
                 (int64_t{slot} * a_.kv_heads + plan_.place.head) * kD;
      const float* norm = is_q ? a_.q_norm : is_v ? nullptr : a_.k_norm;
      turn_head<kD>(raw, norm, a_.qk_eps, is_v ? 0 : a_.pairs, a_.interleaved,
                    floats(layout_.turns) + token * 128, [&](int e, float x) {
                      to[e] = round(x);
                      if (!is_q && writes) cache[e] = to[e];
                    });
    }
  }

  __device__ void attend() {
    const float scale = a_.scale * ptx::kLog2E;
    const int part = plan_.keys.part_of(warp_), end = plan_.keys.parts.end(part);
    KeyUnits<kD, T, true> sets[kSets];
    const auto heads_of = [&](int set) {
      return kSets == 1 ? a_.group : min(a_.group - set * kFusedSetHeads, kFusedSetHeads);
    };
    int token = -1;
    const auto put = [&] {
      float* piece = floats(layout_.pieces) + (part + token) * a_.group * kPieceRow;
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
        sets[s].put(piece + s * kFusedSetHeads * kPieceRow, heads_of(s));
      }
    };
#pragma unroll 1
    for (int i = plan_.keys.parts.begin(part); i < end; ++i) {
      const int unit = plan_.first_unit + i;
      const uint8_t* slot = ring_.wait();
      if (token < 0 || unit >= tokens_[token + 1].base) {
        if (token >= 0) put();
        token = FusedBatchPlan::token_of(tokens_, unit);
        const T* q = elems(layout_.q) + token * a_.group * kD;
#pragma unroll
        for (int s = 0; s < kSets; ++s) sets[s].begin(q + s * kFusedSetHeads * kD, heads_of(s));
      }
      const FusedToken& t = tokens_[token];
      const int key = (t.first_unit + unit - t.base) * kKeys;
      const auto* fresh = elems(layout_.fresh) + 2 * (token + 1 - t.fresh) * kD;
      const KeyUnit keys = {slot,          reinterpret_cast<const uint8_t*>(fresh),
                            t.fresh,       t.length - t.fresh - key,
                            t.first - key, t.length - key};
#pragma unroll
      for (int s = 0; s < kSets; ++s) sets[s].add(keys, scale);
      ring_.release();
    }
    if (token >= 0) put();
  }

  // Stores this CTA's part of some rows, merged over warps: [n, heads, D + 4].
  __device__ void put_parts(const ResultRows& rows) const {
    const int its = rows.heads * kD, row = a_.group * kPieceRow;
    for (int i = thread_; i < rows.n * its; i += kFusedThreads) {
      const int t = i / its, g = i % its / kD, e = i % kD, token = rows.first + t;
      const int begin = max(tokens_[token].base - plan_.first_unit, 0);
      const int end = min(tokens_[token + 1].base - plan_.first_unit, plan_.keys.units);
      MergedParts m;
      if (begin < end) {
        const int from = plan_.keys.parts.owner(begin), to = plan_.keys.parts.owner(end - 1);
        m = MergedParts::of<kD>(floats(layout_.pieces) + (from + token) * row, row, to - from + 1,
                                rows.head + g, e);
      }
      put_merged<kD>(floats(layout_.part) + t * rows.heads * kPieceRow, g, e, m);
    }
  }

  __device__ static int stride_of(const ResultRows& rows) {
    return (rows.count() * kPieceRow * 4 + 15) / 16 * 4;
  }

  // Passes on this CTA's share of its cluster's part of some rows.
  __device__ void put_part(const uint8_t* gathered, const ResultRows& rows) const {
    for (int t = 0; t < rows.n; ++t) {
      put_part_of_head<kD>(a_, plan_.place, rows.first + t, rows.head, rows.heads,
                           reinterpret_cast<const float*>(gathered) + t * rows.heads * kPieceRow,
                           stride_of(rows), tag_ + 1);
    }
  }

  // Stores this CTA's share of some rows of the result.
  __device__ void put_attended(const uint8_t* gathered, const ResultRows& rows) const {
    const int pairs = rows.heads * kD / 2;
    const Shares shares(rows.n * pairs, a_.cluster);
    const int end = shares.end(plan_.place.rank);
    for (int i = shares.begin(plan_.place.rank) + thread_; i < end; i += kFusedThreads) {
      const int t = i / pairs, its = i % pairs;
      const uint32_t pair =
          attended_pair<kD>(reinterpret_cast<const float*>(gathered) + t * rows.heads * kPieceRow,
                            stride_of(rows), a_.cluster, its);
      const int row = ((rows.first + t) * a_.kv_heads + plan_.place.head) * a_.group + rows.head;
      put_pair(a_, row * kD / 2 + its, pair, tag_ + 1);
    }
  }

  // Loads the results of all heads. Threads past the end read the last thread's words.
  __device__ void load_words() const {
    constexpr int kTogether = 8;
    const auto* from = reinterpret_cast<const uint4*>(a_.words);
    const int quads = a_.kv_heads * a_.group * kD / 4;  // of a token
    const int last = live_ * quads - 1;
#pragma unroll 1
    for (int first = thread_; first <= last; first += kTogether * kFusedThreads) {
      const auto place = [&](int j) { return min(first + j * kFusedThreads, last); };
      uint4 v[kTogether];
      wait_words(v, tag_ + 1, [&](int j) { return from + place(j); });
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int token = place(j) / quads, quad = place(j) % quads;
        *reinterpret_cast<uint2*>(x_words() + batch_x_word(2 * quad, token, a_.tokens)) =
            make_uint2(v[j].x, v[j].z);
      }
    }
    clear_x(4 * quads, plan_.out_chunks);
  }

  __device__ void put_outputs() const {
    const int begin = plan_.first_out * kFusedTileRows;
    const int rows = min(plan_.num_out * kFusedTileRows, a_.outputs - begin);
    if (rows <= 0) return;
    for (int i = thread_; i < live_ * rows; i += kFusedThreads) {
      const int token = i / rows, row = i - token * rows;
      const float bias = a_.bias[3] == nullptr ? 0.f : __ldg(a_.bias[3] + begin + row);
      a_.out[int64_t{token} * a_.outputs + begin + row] =
          __float2bfloat16_rn(sum_of(plan_.out, plan_.out_chunks, row, token) + bias);
    }
  }

  const FusedArgs& a_;
  const FusedBatchPlan& plan_;
  const FusedBatchShape& shape_;
  uint8_t* const smem_;
  const FusedBatchLayout& layout_;
  const FusedToken* const tokens_;
  FusedRing ring_;
  const int live_;
  const uint32_t tag_;
  const int thread_;
  const int warp_;
  ClusterExchange<kPath> exchange_;
};

}  // namespace braid::cuda
