#pragma once

#include <type_traits>

#include "braid/kernels/cuda/decode/device/rows.cuh"
#include "braid/kernels/cuda/decode/layout.h"
#include "braid/kernels/cuda/ptx/movmatrix.h"

// A warp streams its units through a private ring by cp.async. Scores are computed as S^T = K Q^T
// and sums as O'^T = V^T P^T, with keys (and dims) as the 16 rows of mma.m16n8k16 and the query
// heads of a KV head as the 8 columns.
namespace braid::cuda {

template <class T, int kD, class Args>
class DecodeWarp {
 public:
  static constexpr int kKeys = unit_keys(kD);
  static constexpr int kRow = tile_row(kD);
  static constexpr int kChunks = kD / 8;
  static constexpr int kLoads = kKeys * kChunks / 32;
  static constexpr int kKeyTiles = kKeys / 16;
  static constexpr int kDimTiles = kD / 16;
  static constexpr int kTile = kKeys * kRow;  // elements
  static constexpr int kStages = kRingUnits;
  static_assert(kKeys * kChunks % 32 == 0);
  static_assert(sizeof(T) == 2);
  static_assert(kTileRows * piece_row(kD) * 4 <= ring_bytes(kD));

  __device__ DecodeWarp(const Args& a, uint8_t* smem, const DecodeShared& layout,
                        const SequenceEntry* sequences, int live)
      : a_(a),
        sequences_(sequences),
        live_(live),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
    ring_ = reinterpret_cast<T*>(smem + warp_ * ring_bytes(kD));
    pieces_ = reinterpret_cast<float*>(smem + layout.pieces) + warp_ * kTileRows * piece_row(kD);
    stats_ = reinterpret_cast<float*>(smem + layout.stats) + warp_ * kPiecesPerWarp * 2 * kTileRows;
    items_ = reinterpret_cast<int4*>(smem + layout.items) + warp_ * kPiecesPerWarp;
  }

  // Units [begin, end): whole items go to the output, parts of items to shared memory.
  __device__ void run(int begin, int end, bool waited) {
    if (lane_ < kPiecesPerWarp) items_[lane_] = make_int4(-1, 0, 0, 0);
    __syncwarp();
    Walk load{};
    Walk at{};
    int issued = begin;
    int slot = -1;
    if (begin < end) {
      at = load = locate(a_, sequences_, live_, begin);
      // The page numbers of the first units are fetched together.
      int slots[kStages];
      int heads[kStages];
      bool sees_new[kStages];
      slot = key_slot(load);
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        slots[stage] = slot;
        heads[stage] = load.head;
        sees_new[stage] = sees_new_keys(load);
        if (issued < end && ++issued < end) {
          advance(a_, sequences_, load);
          slot = key_slot(load);
        }
      }
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        if (begin + stage < end) {
          if (!waited && sees_new[stage]) {
            ptx::grid_dependency_wait();
            waited = true;
          }
          issue(a_.k, ring_ + 2 * stage * kTile, heads[stage], slots[stage]);
          ptx::cp_async_commit();
          issue(a_.v, ring_ + (2 * stage + 1) * kTile, heads[stage], slots[stage]);
        } else {
          ptx::cp_async_commit();
        }
        ptx::cp_async_commit();
      }
    }
    if (!waited) ptx::grid_dependency_wait();

    bool fresh = true;
    bool whole = false;
    int item_begin = 0;
    int stage = 0;
    for (int position = begin; position < end; ++position) {
      if (fresh) {
        start_item(at);
        whole = at.unit == 0;
        item_begin = position - at.unit;
        fresh = false;
      }
      T* k_tile = ring_ + 2 * stage * kTile;
      T* v_tile = k_tile + kTile;
      stage = stage + 1 == kStages ? 0 : stage + 1;

      ptx::cp_async_wait<2 * kStages - 1>();
      __syncwarp();
      scores(k_tile);
      __syncwarp();
      if (issued < end) issue(a_.k, k_tile, load.head, slot);
      ptx::cp_async_commit();
      uint32_t p[kKeyTiles][2];
      softmax(at, p);

      ptx::cp_async_wait<2 * kStages - 1>();
      __syncwarp();
      accumulate(v_tile, p);
      __syncwarp();
      if (issued < end) {
        issue(a_.v, v_tile, load.head, slot);
        if (++issued < end) {
          advance(a_, sequences_, load);
          slot = key_slot(load);
        }
      }
      ptx::cp_async_commit();

      const bool ends = at.unit + 1 == at.work.units;
      const bool last = position + 1 == end;
      if (ends || last) {
        finish_sums();
        if (ends && whole) {
          write_out(at);
        } else {
          if (last) {
            ptx::cp_async_wait<0>();
            __syncwarp();
          }
          write_piece(at, item_begin, last);
        }
        fresh = true;
      }
      if (!last) advance(a_, sequences_, at);
    }
    ptx::cp_async_wait<0>();
  }

 private:
  __device__ __forceinline__ int first_key(const Walk& w) const {
    return (w.work.first_unit + w.unit) * kKeys;
  }

  // Whether the unit holds keys that this step wrote.
  __device__ __forceinline__ bool sees_new_keys(const Walk& w) const {
    return first_key(w) + kKeys > first_new(a_, w.sequence);
  }

  // Cache slot of this lane's key in the unit; -1: none.
  __device__ __forceinline__ int key_slot(const Walk& w) const {
    const int key = first_key(w) + lane_;
    const int low = first_seen(a_, w.s, w.sequence.kv_len - w.sequence.q_len);
    if (lane_ >= kKeys || key >= w.sequence.kv_len || key < low) return -1;
    return slot_of(a_, w.s, key);
  }

  // Elements into a tile at which a key's chunk lies.
  __device__ __forceinline__ static int place(int key, int chunk) {
    return key * kRow + (chunk & ~7) * 8 + ((chunk ^ key) & 7) * 8;
  }

  __device__ __forceinline__ int kv_head(const Walk& w) const {
    return a_.first_kv_head + w.head;
  }

  __device__ __forceinline__ void issue(const void* cache, T* tile, int head, int slot) const {
    const uint8_t* base = static_cast<const uint8_t*>(cache) + (a_.first_kv_head + head) * kD * 2;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * 32 + lane_;
      const int key = at / kChunks;
      const int chunk = at % kChunks;
      const int key_at = __shfl_sync(kAllLanes, slot, key);
      const uint64_t offset = uint64_t{static_cast<uint32_t>(max(key_at, 0))} * a_.token_bytes;
      ptx::cp_async_16(tile + place(key, chunk), base + offset + chunk * 16, key_at >= 0);
    }
  }

  // Elements of this lane's row; all loads before the first use.
  __device__ __forceinline__ void load_q(bool valid, int64_t at) {
    at += lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * kDimTiles; ++i) q_[i / 2][i % 2] = 0u;
    if (!valid) return;
    if (a_.q_f32) {
      float2 x[2 * kDimTiles];
#pragma unroll
      for (int i = 0; i < 2 * kDimTiles; ++i) {
        x[i] = *reinterpret_cast<const float2*>(static_cast<const float*>(a_.q) + at + i * 8);
      }
#pragma unroll
      for (int i = 0; i < 2 * kDimTiles; ++i) q_[i / 2][i % 2] = ptx::pack<T>(x[i].x, x[i].y);
      return;
    }
#pragma unroll
    for (int i = 0; i < 2 * kDimTiles; ++i) {
      q_[i / 2][i % 2] =
          *reinterpret_cast<const uint32_t*>(static_cast<const __nv_bfloat16*>(a_.q) + at + i * 8);
    }
    if constexpr (!std::is_same_v<T, __nv_bfloat16>) {
#pragma unroll
      for (int i = 0; i < 2 * kDimTiles; ++i) {
        const uint32_t x = q_[i / 2][i % 2];
        q_[i / 2][i % 2] = ptx::pack<T>(ptx::low_half(x), ptx::high_half(x));
      }
    }
  }

  __device__ __forceinline__ void start_item(const Walk& w) {
    const int head = kv_head(w);
    const int row = w.tile * kTileRows;
    const QueryRow mine = query_row(a_, w.sequence, head, row + lane_ / 4);
    const int64_t q = mine.valid ? mine.token * a_.q_stride + int64_t{mine.head} * kD : 0;
    load_q(mine.valid, q);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      // Rows past the last token see the last token's keys; they are not written.
      const int token = w.sequence.q_len == 1
                            ? 0
                            : min((row + lane_ % 4 * 2 + c) / a_.shape.group, w.sequence.q_len - 1);
      high_[c] = w.sequence.kv_len - w.sequence.q_len + token;
      low_[c] = first_seen(a_, w.s, high_[c]);
      max_[c] = -INFINITY;
      sum_[c] = 0.f;
    }
#pragma unroll
    for (int i = 0; i < kDimTiles; ++i) {
#pragma unroll
      for (float& x : o_[i]) x = 0.f;
    }
  }

  __device__ __forceinline__ void scores(const T* tile) {
    float part[2][4] = {};
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
      for (float& x : s_[t]) x = 0.f;
    }
#pragma unroll
    for (int i = 0; i < kDimTiles; ++i) {
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
        uint32_t k[4];
        ptx::ldmatrix_x4(k, tile + place(t * 16 + lane_ % 16, 2 * i + lane_ / 16));
        // Two chains in place of a single chain: each product waits for the product before.
        float* d = kKeyTiles == 1 && i % 2 ? part[0] : s_[t];
        ptx::mma_16816<T>(d, k, q_[i][0], q_[i][1]);
      }
    }
    if (kKeyTiles == 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s_[0][i] += part[0][i];
    }
  }

  // Scores -> weights, as the right operand of the next product; element 2 r + c of s_[t] is key
  // 16 t + 8 r + lane / 4, query row 2 (lane % 4) + c.
  __device__ __forceinline__ void softmax(const Walk& w, uint32_t (&p)[kKeyTiles][2]) {
    const int key = first_key(w) + lane_ / 4;
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x = s_[t][i] * a_.scale;
        if (a_.softcap > 0.f) x = a_.softcap * tanhf(x * a_.softcap_inverse);
        x *= ptx::kLog2E;
        const int at = key + 16 * t + i / 2 * 8;
        s_[t][i] = at > high_[i % 2] || at < low_[i % 2] ? -INFINITY : x;
      }
    }
    float alpha[2];
    float base[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float top = fmaxf(s_[0][c], s_[0][2 + c]);
#pragma unroll
      for (int t = 1; t < kKeyTiles; ++t) top = fmaxf(top, fmaxf(s_[t][c], s_[t][2 + c]));
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
      }
      const bool rises = top > max_[c];
      alpha[c] = rises ? ptx::exp2_approx(max_[c] - top) : 1.f;
      max_[c] = rises ? top : max_[c];
      base[c] = max_[c] == -INFINITY ? 0.f : max_[c];
      sum_[c] *= alpha[c];
    }
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s_[t][i] = ptx::exp2_approx(s_[t][i] - base[i % 2]);
        sum_[i % 2] += s_[t][i];
      }
      p[t][0] = ptx::transpose_8x8(ptx::pack<T>(s_[t][0], s_[t][1]));
      p[t][1] = ptx::transpose_8x8(ptx::pack<T>(s_[t][2], s_[t][3]));
    }
    if (__any_sync(kAllLanes, alpha[0] != 1.f || alpha[1] != 1.f)) {
#pragma unroll
      for (int i = 0; i < kDimTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) o_[i][j] *= alpha[j % 2];
      }
    }
  }

  __device__ __forceinline__ void accumulate(const T* tile, const uint32_t (&p)[kKeyTiles][2]) {
#pragma unroll
    for (int i = 0; i < kDimTiles; ++i) {
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
        uint32_t v[4];
        ptx::ldmatrix_x4_trans(
            v, tile + place(t * 16 + lane_ / 16 * 8 + lane_ % 8, 2 * i + lane_ / 8 % 2));
        ptx::mma_16816<T>(o_[i], v, p[t][0], p[t][1]);
      }
    }
  }

  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        sum_[c] += __shfl_xor_sync(kAllLanes, sum_[c], step);
      }
    }
  }

  __device__ __forceinline__ void write_out(const Walk& w) const {
    const int row = w.tile * kTileRows;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const QueryRow r = query_row(a_, w.sequence, kv_head(w), row + lane_ % 4 * 2 + c);
      if (!r.valid) continue;
      if constexpr (std::is_base_of_v<StateArgs, Args>) {
        float* out = state_row(a_, r, kD);
#pragma unroll
        for (int i = 0; i < kDimTiles; ++i) {
          out[i * 16 + lane_ / 4] = o_[i][c];
          out[i * 16 + lane_ / 4 + 8] = o_[i][2 + c];
        }
        if (lane_ < 4) store_sums(out, kD, sum_[c], max_[c]);
        continue;
      }
      const float scale = sum_[c] > 0.f ? 1.f / sum_[c] : 0.f;
#pragma unroll
      for (int i = 0; i < kDimTiles; ++i) {
        store_out(a_, r, kD, i * 16 + lane_ / 4, o_[i][c] * scale);
        store_out(a_, r, kD, i * 16 + lane_ / 4 + 8, o_[i][2 + c] * scale);
      }
    }
  }

  __device__ __forceinline__ void write_piece(const Walk& w, int item_begin, bool last) {
    float* piece = last ? reinterpret_cast<float*>(ring_) : pieces_;
    float* stats = stats_ + (last ? 2 * kTileRows : 0);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int row = lane_ % 4 * 2 + c;
      if (lane_ < 4) {
        stats[row] = max_[c];
        stats[kTileRows + row] = sum_[c];
      }
#pragma unroll
      for (int i = 0; i < kDimTiles; ++i) {
        piece[row * piece_row(kD) + i * 16 + lane_ / 4] = o_[i][c];
        piece[row * piece_row(kD) + i * 16 + lane_ / 4 + 8] = o_[i][2 + c];
      }
    }
    if (lane_ == 0)
      items_[last] = make_int4(item_begin, item_begin + w.work.units, w.s, w.tile << 12 | w.head);
  }

  const Args& a_;
  const SequenceEntry* sequences_;
  int live_;
  int warp_;
  int lane_;
  T* ring_;
  float* pieces_;
  float* stats_;
  int4* items_;

  uint32_t q_[kDimTiles][2];  // [16 dims, 8 rows] each
  float s_[kKeyTiles][4];     // [16 keys, 8 rows] each
  float o_[kDimTiles][4];     // [16 dims, 8 rows] each
  float max_[2];              // for rows 2 (lane % 4) + c, in units of log2
  float sum_[2];              // this lane's part
  int low_[2];                // keys visible to these rows: [low, high]
  int high_[2];
};

}  // namespace braid::cuda
