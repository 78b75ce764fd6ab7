#pragma once

#include "braid/kernels/cuda/decode/device/warp.cuh"

// The kernel. Warps never wait for each other until the end, when parts of one item are added in
// the order of their keys: warps' through shared memory, CTAs' through the workspace, by whichever
// comes last.
namespace braid::cuda {

// Memory for parts of unfinished items: see DecodeWorkspace.
struct Parts {
  float* o;
  float2* stats;
  float* group_o;
  float2* group_stats;
  int32_t* arrivals;
  int32_t* group_arrivals;

  __device__ Parts(void* workspace, int head_dim, int ctas) {
    const DecodeWorkspace places(head_dim, ctas);
    auto* base = static_cast<uint8_t*>(workspace);
    o = reinterpret_cast<float*>(base + places.pieces);
    stats = reinterpret_cast<float2*>(base + places.stats);
    group_o = reinterpret_cast<float*>(base + places.group_pieces);
    group_stats = reinterpret_cast<float2*>(base + places.group_stats);
    arrivals = reinterpret_cast<int32_t*>(base + places.counters);
    group_arrivals = arrivals + ctas * kMaxWarps;
  }
};

// The query rows of an item's tile.
struct ItemRows {
  SequenceEntry sequence;
  int head;
  int row;

  __device__ ItemRows(const DecodeArgs& a, const SequenceEntry* sequences, const PieceItem& p)
      : head(a.first_kv_head + (p.item & 0xfff)), row((p.item >> 12) * kTileRows) {
    const int4 e = reinterpret_cast<const int4*>(sequences)[p.s];
    sequence = {e.x, e.y, e.z, e.w};
  }
};

// Row `part` among parts; each warp with elements in the row writes the row's m and l.
template <int kD>
__device__ __forceinline__ void write_part(float* parts, float2* stats, int part, int dim,
                                           const Merge& sum) {
  *reinterpret_cast<float4*>(parts + int64_t{part} * kD + dim) = sum.o;
  if (dim == 0 || threadIdx.x % 32 == 0) stats[part] = make_float2(sum.top, sum.l);
}

// The warps' pieces in shared memory, after all have arrived: pieces of an item are added up.
template <int kD, class Args>
class CtaPieces {
 public:
  // Of units [begin, end).
  __device__ CtaPieces(const Args& a, uint8_t* smem, const DecodeShared& layout,
                       const SequenceEntry* sequences, int begin, int end)
      : a_(a), smem_(smem), layout_(layout), sequences_(sequences), begin_(begin), end_(end) {
    const int lane = threadIdx.x % 32;
    mine_ = make_int4(-1, 0, 0, 0);
    if (lane < kPiecesPerWarp << a.warps_log2) {
      mine_ = reinterpret_cast<const int4*>(smem + layout.items)[lane];
    }
    same_ = __match_any_sync(kAllLanes, mine_.x);
    firsts_ = __ballot_sync(kAllLanes, mine_.x >= 0 && __ffs(same_) - 1 == lane);
  }

  // Writes up to two items with parts on other CTAs to `parts`; `unfinished` are the items with
  // elements of this warp, in all CTAs or in none.
  __device__ void write_unfinished(const Parts& parts, PieceItem (&unfinished)[2]) const {
    for_each([&](const PieceItem& p, unsigned pieces) {
      if (is_whole(p)) return;
      bool any = false;
      const int slot = p.begin >= begin_ ? 1 : 0;
      const ItemRows item(a_, sequences_, p);
      for (int e = threadIdx.x; e < kElements; e += blockDim.x) {
        add(item, pieces, e, [&](const QueryRow&, int row, int dim, const Merge& sum) {
          any = true;
          write_part<kD>(parts.o, parts.stats, (blockIdx.x * 2 + slot) * kTileRows + row, dim, sum);
        });
      }
      if (__any_sync(kAllLanes, any)) unfinished[slot] = p;
    });
  }

  // Writes items that lie wholly on this CTA to the output: warps take 32 fours in turns.
  __device__ void write_whole() const {
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    int turn = warps - 1 - static_cast<int>(threadIdx.x) / 32;  // warp 0, which may be late, last
    for_each([&](const PieceItem& p, unsigned pieces) {
      if (!is_whole(p)) return;
      const ItemRows item(a_, sequences_, p);
      const int rows = min(kTileRows, item.sequence.q_len * a_.shape.group - item.row);
      for (int e = 0; e < rows * kQuads; e += 32) {
        if (turn-- > 0) continue;
        turn = warps - 1;
        add(item, pieces, e + lane, [&](const QueryRow& r, int, int dim, const Merge& sum) {
          store_row(a_, r, kD, dim, sum);
        });
      }
    });
  }

 private:
  static constexpr int kQuads = kD / 4;
  static constexpr int kElements = kTileRows * kQuads;  // of an item, by fours

  __device__ __forceinline__ bool is_whole(const PieceItem& p) const {
    return p.begin >= begin_ && p.end <= end_;
  }

  // f(item, the item's pieces). Pieces of an item are neighbours: (warp 0, piece 0), (0, 1), (1,
  // 0), ...; lane i looks at the i-th.
  template <class F>
  __device__ __forceinline__ void for_each(const F& f) const {
    for (unsigned left = firsts_; left != 0; left &= left - 1) {
      const int first = __ffs(left) - 1;
      const unsigned pieces = __shfl_sync(kAllLanes, same_, first);
      PieceItem p;
      p.begin = __shfl_sync(kAllLanes, mine_.x, first);
      p.end = __shfl_sync(kAllLanes, mine_.y, first);
      p.s = __shfl_sync(kAllLanes, mine_.z, first);
      p.item = __shfl_sync(kAllLanes, mine_.w, first);
      f(p, pieces);
    }
  }

  // A piece's O' [8, D + 4]; m and l [2, 8].
  __device__ __forceinline__ const float* sums(int piece) const {
    const uint8_t* at = piece % 2
                            ? smem_ + piece / 2 * ring_bytes(kD)
                            : smem_ + layout_.pieces + piece / 2 * kTileRows * piece_row(kD) * 4;
    return reinterpret_cast<const float*>(at);
  }
  __device__ __forceinline__ const float* stats(int piece) const {
    return reinterpret_cast<const float*>(smem_ + layout_.stats) + piece * 2 * kTileRows;
  }

  // finish(row, row number, dim, sum) for elements `e` of an item.
  template <class Finish>
  __device__ __forceinline__ void add(const ItemRows& item, unsigned pieces, int e,
                                      const Finish& finish) const {
    const int row = e / kQuads;
    const int dim = e % kQuads * 4;
    const QueryRow r = query_row(a_, item.sequence, item.head, item.row + row);
    if (row >= kTileRows || !r.valid) return;
    // A warp has at most a single piece of an item; without a piece, the first warp's stands in
    // with zero weight, so loads by four warps go out together.
    constexpr int kTogether = 4;
    Merge sum;
#pragma unroll 1
    for (int warp = 0; warp < 1 << a_.warps_log2; warp += kTogether) {
      float m[kTogether], l[kTogether];
      float4 o[kTogether];
      float top = sum.top;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const unsigned its = pieces >> 2 * (warp + i) & 3;
        const int piece = its ? 2 * (warp + i) + (its >> 1) : __ffs(pieces) - 1;
        m[i] = stats(piece)[row];
        l[i] = stats(piece)[kTileRows + row];
        o[i] = *reinterpret_cast<const float4*>(sums(piece) + row * piece_row(kD) + dim);
        if (its == 0) m[i] = -INFINITY;
        top = fmaxf(top, m[i]);
      }
      sum.raise(top);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) sum.add(m[i], l[i], o[i]);
    }
    finish(r, row, dim, sum);
  }

  const Args& a_;
  uint8_t* const smem_;
  const DecodeShared& layout_;
  const SequenceEntry* const sequences_;
  const int begin_, end_;
  int4 mine_;        // a piece
  unsigned same_;    // lanes with pieces of the same item
  unsigned firsts_;  // lanes with an item's first piece
};

// Adds `count` parts, part i being number number(i), into `finish(row, dim, sum)`.
template <int kD, class Number, class Finish>
__device__ __forceinline__ void add_parts(const DecodeArgs& a, const ItemRows& item, int count,
                                          const float* parts, const float2* stats,
                                          const Number& number, const Finish& finish) {
  constexpr int kQuads = kD / 4;
  constexpr int kTogether = 8;
  for (int e = threadIdx.x; e < kTileRows * kQuads; e += blockDim.x) {
    const int row = e / kQuads;
    const int dim = e % kQuads * 4;
    const QueryRow r = query_row(a, item.sequence, item.head, item.row + row);
    if (!r.valid) continue;
    Merge sum;
#pragma unroll 1
    for (int begin = 0; begin < count; begin += kTogether) {
      float4 o[kTogether];
      float2 s[kTogether];
      float top = sum.top;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int part = number(min(begin + i, count - 1)) * kTileRows + row;
        s[i] = __ldcg(stats + part);
        o[i] = __ldcg(reinterpret_cast<const float4*>(parts + int64_t{part} * kD + dim));
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (begin + i >= count) s[i].x = -INFINITY;
        top = fmaxf(top, s[i].x);
      }
      sum.raise(top);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) sum.add(s[i].x, s[i].y, o[i]);
    }
    finish(r, row, dim, sum);
  }
}

// For two counters at once: whether this warp is the last of counts[i] arrivals, with all others'
// earlier writes visible. A count of 0: no.
__device__ __forceinline__ unsigned arrive(int32_t* const (&counters)[2], const int (&counts)[2]) {
  const int lane = threadIdx.x % 32;
  const int count = lane == 0 ? counts[0] : lane == 1 ? counts[1] : 0;
  __syncwarp();
  bool last = false;
  if (count > 0) {
    int32_t* counter = lane == 0 ? counters[0] : counters[1];
    __threadfence();
    last = atomicAdd(counter, 1) == count - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  return __ballot_sync(kAllLanes, last);
}

// Finishes items over several CTAs: the last CTA at an item adds the item's parts; with many parts,
// the last CTA at a group of parts adds the group first. Each warp acts alone, for elements that no
// other warp of its CTA writes, with separate counters.
template <int kD, class Args>
__device__ __forceinline__ void combine(const Args& a, const SequenceEntry* sequences,
                                        const Deal& deal, const Parts& parts,
                                        const PieceItem (&unfinished)[2]) {
  if (unfinished[0].begin < 0 && unfinished[1].begin < 0) return;
  const int cta = blockIdx.x;
  const int warp = threadIdx.x / 32;
  int first[2];     // CTA of the item
  int count[2];     // parts in the item, or groups of parts
  int group[2];     // first CTA of this CTA's group
  int in_group[2];  // its parts
  bool grouped[2];
  int32_t* counters[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const PieceItem& p = unfinished[slot];
    const bool any = p.begin >= 0;
    first[slot] = !any || slot == 1 ? cta : deal.owner(p.begin);
    count[slot] = any ? deal.owner(p.end - 1) - first[slot] + 1 : 0;
    grouped[slot] = count[slot] > kGroup;
    group[slot] = first[slot];
    in_group[slot] = count[slot];
    counters[slot] = parts.arrivals + first[slot] * kMaxWarps + warp;
    if (grouped[slot]) {
      group[slot] += (cta - first[slot]) / kGroup * kGroup;
      in_group[slot] = min(kGroup, first[slot] + count[slot] - group[slot]);
      count[slot] = (count[slot] + kGroup - 1) / kGroup;
      counters[slot] = parts.group_arrivals +
                       (2 * group[slot] + (group[slot] == first[slot])) * kMaxWarps + warp;
    }
  }
  const unsigned last = arrive(counters, in_group);
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    if (!(last >> slot & 1)) {
      count[slot] = 0;
      continue;
    }
    const int begin = group[slot];
    const int began_here = begin == first[slot];
    const auto number = [&](int i) { return (begin + i) * 2 + (i == 0 ? began_here : 0); };
    const bool to_group = grouped[slot];
    add_parts<kD>(a, ItemRows(a, sequences, unfinished[slot]), in_group[slot], parts.o, parts.stats,
                  number, [&](const QueryRow& r, int row, int dim, const Merge& sum) {
                    if (to_group) {
                      write_part<kD>(parts.group_o, parts.group_stats, number(0) * kTileRows + row,
                                     dim, sum);
                    } else {
                      store_row(a, r, kD, dim, sum);
                    }
                  });
    if (!to_group) count[slot] = 0;
    counters[slot] = parts.arrivals + first[slot] * kMaxWarps + warp;
  }
  if (count[0] == 0 && count[1] == 0) return;
  const unsigned last_group = arrive(counters, count);
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    if (!(last_group >> slot & 1)) continue;
    add_parts<kD>(
        a, ItemRows(a, sequences, unfinished[slot]), count[slot], parts.group_o, parts.group_stats,
        [&](int i) { return (first[slot] + i * kGroup) * 2 + (i == 0 ? 1 : 0); },
        [&](const QueryRow& r, int, int dim, const Merge& sum) { store_row(a, r, kD, dim, sum); });
  }
}

// States of queries without keys, a CTA each. As units of a warp, the 16 items of two such queries
// took 14 us on an H200.
template <int kD>
__device__ __forceinline__ void write_keyless(const StateArgs& a) {
  const int last = static_cast<int>(gridDim.x) - 1;  // which may have no units
  for (int s = last - static_cast<int>(blockIdx.x); s < a.max_sequences; s += last + 1) {
    if (a.begin[s] < a.kv_len[s]) continue;
    const int floats = a.num_q_heads * (kD + 2);
    float* const out = static_cast<float*>(a.out) + int64_t{s} * floats;
    for (int i = threadIdx.x; i < floats; i += blockDim.x) {
      out[i] = i % (kD + 2) == kD + 1 ? -INFINITY : 0.f;
    }
  }
}

template <class T, int kD, class Args>
__global__ void __launch_bounds__(256, 1) decode_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) uint8_t smem[];
  ptx::grid_launch_dependents();
  if (!a.history_ready) ptx::grid_dependency_wait();
  const int warp = threadIdx.x / 32;
  const DecodeShared layout(kD, 1 << a.warps_log2, a.max_sequences);
  auto* sequences = reinterpret_cast<SequenceEntry*>(smem + layout.sequences) +
                    (a.max_sequences <= kFewSequences ? warp * a.max_sequences : 0);
  const StepWork work =
      scan_sequences(a, sequences, reinterpret_cast<int32_t*>(smem + layout.scan));
  const Deal deal = deal_to_ctas(work.units, work.items, gridDim.x, a.warps_log2);
  const int cta = min(static_cast<int>(blockIdx.x), deal.parts);  // the rest have nothing to do
  const int begin = deal.begin(cta);
  const int end = deal.begin(min(cta + 1, deal.parts));
  const Shares of_warps(end - begin, 1 << a.warps_log2, (end - begin) >> a.warps_log2);
  DecodeWarp<T, kD, Args>(a, smem, layout, sequences, work.live)
      .run(begin + of_warps.begin(warp), begin + of_warps.begin(warp + 1), !a.history_ready);
  if constexpr (std::is_base_of_v<StateArgs, Args>) write_keyless<kD>(a);
  __syncthreads();
  const Parts parts(a.workspace, kD, gridDim.x);
  PieceItem unfinished[2] = {{-1, 0, 0, 0}, {-1, 0, 0, 0}};
  const CtaPieces<kD, Args> pieces(a, smem, layout, sequences, begin, end);
  pieces.write_unfinished(parts, unfinished);
  combine<kD>(a, sequences, deal, parts, unfinished);
  pieces.write_whole();
}

}  // namespace braid::cuda
