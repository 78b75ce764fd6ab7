#pragma once

#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/relay/device/sums.cuh"
#include "braid/kernels/cuda/relay/device/tiles.cuh"

// A linear of a relay: a CTA has neighbouring outputs, and a warp every eighth slot of the outputs'
// weights. With kBlocks some weights are blocks, and slots hold tiles.
namespace braid::cuda {

template <int kNorm, bool kRanked, bool kBlocks>
class RelayProduct {
 public:
  __device__ RelayProduct(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : ranks_(a),
        x_(smem + layout.x),
        sums_(reinterpret_cast<float*>(smem + layout.sums)),
        squares_(reinterpret_cast<float*>(smem + layout.squares)),
        thread_(threadIdx.x) {}

  // x into shared memory.
  __device__ void load(const RelayLinear& s, const RelayPlace& place) {
    s.normed ? load_normed(s, place) : load_words(s, place);
  }

  // Plans this CTA's share of a linear, without waiting for the input.
  __device__ void plan(const RelayLinear& s, RelayRing& ring) {
    const RelayOutputs outputs(s.cut, blockIdx.x);
    begin_ = outputs.begin;
    count_ = outputs.count();
#pragma unroll
    for (int part = 0; part < kRelayWeights; ++part) {
      const RelayRows rows(s, part, outputs);
      rows_[part] = rows.count;
      slots_[part] = tiled(s) ? rows.tiles() * s.cut.tiles[part].chunks : rows.slots(s.k);
      if (tiled(s)) starts_[part] = rows.start(s, part);
    }
    output_ = output_of(s, min(thread_, count_ - 1));
    ring.begin(slots_[0] + slots_[1] + slots_[2]);
  }

  __device__ void multiply(const RelayLinear& s, RelayRing& ring) const {
    if (kRanked && s.x != nullptr) write_x(s);
    tiled(s) ? multiply_tiles(s, ring) : multiply_rows(s, ring);
  }

  // Outputs, in pairs.
  __device__ void finish(const RelayLinear& s, const RelayPlace& place) const {
    const float scale = s.normed ? scale_of(s) : 1;
    Output out = output_;
    // A thread has an output, and its neighbour the pair's other half.
#pragma unroll 1
    for (int unit = thread_;; unit += kRelayThreads) {
      const float y = value(s, out, scale);
      const float other = __shfl_xor_sync(0xffffffff, y, 1);
      if (unit < count_ && unit % 2 == 0 && s.f32) {
        static_cast<float2*>(s.y[out.part])[out.column / 2] = make_float2(y, other);
      } else if (unit < count_ && unit % 2 == 0) {
        const uint32_t word = ptx::pack<__nv_bfloat16>(y, other);
        // Memory first: after the word a later step may store to the same place, a way through L2
        // and a meeting of warps later.
        static_cast<uint32_t*>(s.y[out.part])[out.column / 2] = word;
        const int pair = (begin_ + unit) / 2;
        if (kRanked && s.shared) {
          ranks_.send(pair, word, place.out_tag);
        } else {
          ptx::store_relaxed_gpu(place.out + pair, make_uint2(word, place.out_tag));
        }
      }
      if (unit - thread_ + kRelayThreads >= count_) break;
      out = output_of(s, min(unit + kRelayThreads, count_ - 1));
    }
  }

  __device__ const RelaySums& ranks() const {
    return ranks_;
  }

 private:
  static constexpr int kNormReads = kNorm / 4 / kRelayThreads;  // per thread
  static constexpr int kTileSums = kRelayTileRows * kRelayWarps;

  __device__ static bool tiled(const RelayLinear& s) {
    return kBlocks && s.tiled();
  }

  __device__ void multiply_rows(const RelayLinear& s, RelayRing& ring) const {
    const int row_bytes = 2 * s.k;
    int slot = thread_ / 32;  // in this weight; past the last: in the next weights
    float* sums = sums_;
#pragma unroll 1
    for (int part = 0; part < kRelayWeights; ++part) {
      const int rows = part == 0 ? rows_[0] : part == 1 ? rows_[1] : rows_[2];
      const int slots = part == 0 ? slots_[0] : part == 1 ? slots_[1] : slots_[2];
      // Start of the slot.
      const int first = slot * kRelaySlotBytes;
      int row = __float2int_rd(static_cast<float>(first) * s.cut.rows_a_byte);
      int at = first - row * row_bytes;
      if (at < 0) at += row_bytes, --row;
      if (at >= row_bytes) at -= row_bytes, ++row;
#pragma unroll 1
      for (; slot < slots; slot += kRelayWarps) {
        int left = min(kRelaySlotBytes, (rows - row) * row_bytes - at);
        const uint8_t* w = ring.wait();
        int its_row = row, its_at = at;
#pragma unroll 1
        while (true) {
          const int bytes = min(left, row_bytes - its_at);
          const float sum = product(w, x_ + its_at, bytes);
          left -= bytes;
          if (left == 0) ring.release();
          put_sum(sums + slot + its_row, sum);
          if (left == 0) break;
          w += bytes;
          ++its_row;
          its_at = 0;
        }
        row += s.cut.rows_on;
        at += s.cut.bytes_on;
        if (at >= row_bytes) at -= row_bytes, ++row;
      }
      slot -= slots;
      sums += rows + slots;
    }
  }

  // A warp adds up its own share in a tile.
  __device__ void multiply_tiles(const RelayLinear& s, RelayRing& ring) const {
    const int warp = thread_ / 32, lane = thread_ % 32;
    int slot = warp;  // in this weight; past the last: in the next weights
    float* sums = sums_ + warp * kRelayTileRows + lane / 4;
    const RelayPlanes x(x_, s.k);
#pragma unroll 1
    for (int part = 0; part < kRelayWeights; ++part) {
      const RelayTiles& cut = s.cut.tiles[part];
      const int slots = part == 0 ? slots_[0] : part == 1 ? slots_[1] : slots_[2];
      const int row_bytes = cut.row_bytes, chunks = cut.chunks;
      if (slots == 0) continue;
      int tile = slot / chunks, chunk = slot - tile * chunks;
      float sum[2] = {};
      uint32_t start = part == 0 ? starts_[0] : part == 1 ? starts_[1] : starts_[2];
      start += tile * kRelayTileRows * row_bytes;
#pragma unroll 1
      while (slot < slots) {
        const int at = chunk * cut.chunk_bytes, elem = chunk * cut.chunk_elems;
        const uint8_t* slab = ring.wait();
        const auto row = [&](int r) {
          return slab + r * cut.stride + ((start + r * row_bytes + at) & 15);
        };
        multiply_tile(s.dtype[part], row(lane / 4), row(lane / 4 + 8),
                      min(cut.chunk_bytes, row_bytes - at), x, elem, sum);
        ring.release();
        slot += kRelayWarps;
        chunk += kRelayWarps;
        if (chunk < chunks && slot < slots) continue;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
          sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
          if (lane % 4 == 0) sums[tile * kTileSums + 8 * r] = sum[r];
          sum[r] = 0;
        }
        for (; chunk >= chunks; chunk -= chunks) {
          ++tile;
          start += kRelayTileRows * row_bytes;
        }
      }
      slot -= slots;
      sums += slots / chunks * kTileSums;
    }
  }

  // This lane's share of w * x.
  __device__ __forceinline__ static float product(const uint8_t* w, const uint8_t* x, int bytes) {
    constexpr int kMany = 8, kFew = 4;  // reads per lane
    const int lane = threadIdx.x % 32;
    const auto* ws = reinterpret_cast<const uint4*>(w) + lane;
    const auto* xs = reinterpret_cast<const uint4*>(x) + lane;
    RelayDot dot;
#pragma unroll 1
    for (; bytes >= kMany * 512; bytes -= kMany * 512, ws += kMany * 32, xs += kMany * 32) {
      uint4 its_w[kMany], its_x[kMany];
#pragma unroll
      for (int j = 0; j < kMany; ++j) its_w[j] = ws[32 * j], its_x[j] = xs[32 * j];
#pragma unroll
      for (int j = 0; j < kMany; ++j) dot.add(j, its_w[j], its_x[j]);
    }
#pragma unroll 1
    for (int left = bytes - 16 * lane; bytes > 0;
         bytes -= kFew * 512, left -= kFew * 512, ws += kFew * 32, xs += kFew * 32) {
      uint4 its_w[kFew], its_x[kFew];
#pragma unroll
      for (int j = 0; j < kFew; ++j) {
        its_w[j] = 512 * j < left ? ws[32 * j] : uint4{};
        its_x[j] = 512 * j < left ? xs[32 * j] : uint4{};
      }
#pragma unroll
      for (int j = 0; j < kFew; ++j) dot.add(j, its_w[j], its_x[j]);
    }
    return dot.share();
  }

  __device__ static void put_sum(float* to, float sum) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffff, sum, mask);
    if (threadIdx.x % 32 == 0) *to = sum;
  }

  // The norm's scale. Warps without outputs may read a later norm's values; nobody uses the result.
  __device__ float scale_of(const RelayLinear& s) const {
    float all = 0;
    for (int w = 0; w < kRelayWarps; ++w) all += squares_[w];
    return rsqrtf(all / static_cast<float>(s.k) + s.eps);
  }

  // Each CTA writes a part of x to memory, so all CTAs have equal work.
  __device__ void write_x(const RelayLinear& s) const {
    const float scale = scale_of(s);
    const int end = s.cut.x_pairs.end(blockIdx.x);
#pragma unroll 1
    for (int i = s.cut.x_pairs.begin(blockIdx.x) + thread_; i < end; i += kRelayThreads) {
      const float2 x = pair_of_x(s, i);
      static_cast<uint32_t*>(s.x)[i] = ptx::pack<__nv_bfloat16>(x.x * scale, x.y * scale);
    }
  }

  // An output: its weight's number, and its own sums.
  struct Output {
    int part;
    int column;
    int first;
    int sums;
    int warp = 0;  // warp with the tile's first chunk
  };
  __device__ Output output_of(const RelayLinear& s, int unit) const {
    Output out{.part = 0, .column = begin_ + unit, .first = 0, .sums = 0};
    int row = unit, before = 0;  // slots in earlier weights
#pragma unroll
    for (int part = 0; part + 1 < kRelayWeights; ++part) {
      if (s.gated || row < rows_[part] || out.part < part) continue;
      row -= rows_[part];
      out.first += sums_of_part(s, part);
      before += slots_[part];
      out.part = part + 1;
    }
    out.column -= s.cut.before[out.part];
    if (tiled(s)) {
      const int chunks = s.cut.tiles[out.part].chunks, tile = row / kRelayTileRows;
      out.first += tile * kTileSums + row % kRelayTileRows;
      out.sums = min(chunks, kRelayWarps);
      out.warp = (before + tile * chunks) % kRelayWarps;
      return out;
    }
    const int row_bytes = 2 * s.k, at = row * row_bytes;
    out.sums = (at + row_bytes - 1) / kRelaySlotBytes - at / kRelaySlotBytes + 1;
    out.first += at / kRelaySlotBytes + row;
    return out;
  }

  __device__ float value(const RelayLinear& s, const Output& out, float scale) const {
    const float y = sum_of(s, out, 0, scale);
    return s.gated ? activate(s.gelu, y) * sum_of(s, out, 1, scale) : y;
  }
  // A row's sums in slot order; `up`: the second weight of a gated pair.
  __device__ __forceinline__ float sum_of(const RelayLinear& s, const Output& out, int up,
                                          float scale) const {
    const float* sums = sums_ + out.first + (up ? sums_of_part(s, 0) : 0);
    float all = 0;
    if (tiled(s)) {
      const int warp = out.warp + (up ? slots_[0] : 0);
#pragma unroll
      for (int i = 0; i < kRelayWarps; ++i) {
        if (i < out.sums) all += sums[(warp + i) % kRelayWarps * kRelayTileRows];
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < out.sums; ++i) all += sums[i];
    }
    const float* bias = s.bias[out.part + up];
    return all * scale + (bias == nullptr ? 0.f : __ldg(bias + out.column));
  }

  // Sums for the rows of a weight.
  __device__ int sums_of_part(const RelayLinear& s, int part) const {
    if (tiled(s)) return (rows_[part] + kRelayTileRows - 1) / kRelayTileRows * kTileSums;
    return rows_[part] + slots_[part];
  }

  // Stores the i-th two pairs of x, in RelayDot's order or as planes. Threads past the end hold the
  // last pairs, at `place`, and store these again, or nothing.
  __device__ void put_x(const RelayLinear& s, int i, int place, uint32_t first,
                        uint32_t second) const {
    if (tiled(s)) {
      RelayPlanes(x_, s.k).put(i, first, second);
    } else {
      auto* x = reinterpret_cast<uint32_t*>(x_);
      x[relay_x_word(2 * place)] = first;
      x[relay_x_word(2 * place + 1)] = second;
    }
  }
  __device__ float2 pair_of_x(const RelayLinear& s, int i) const {
    if (tiled(s)) return RelayPlanes(x_, s.k).pair(i);
    const uint32_t x = reinterpret_cast<const uint32_t*>(x_)[relay_x_word(i)];
    return {ptx::low_half(x), ptx::high_half(x)};
  }

  // Threads past the end read the last thread's words, so a warp stays together.
  __device__ void load_words(const RelayLinear& s, const RelayPlace& place) const {
    constexpr int kTogether = 4;
    const auto* from = reinterpret_cast<const uint4*>(place.in);
    const int last = s.k / 4 - 1;
#pragma unroll 1
    for (int first = thread_; first - thread_ % 32 <= last; first += kTogether * kRelayThreads) {
      const auto place_of = [&](int j) { return min(first + j * kRelayThreads, last); };
      uint4 v[kTogether];
      wait_words(v, place.in_tag, [&](int j) { return from + place_of(j); });
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        put_x(s, first + j * kRelayThreads, place_of(j), v[j].x, v[j].z);
      }
    }
  }

  // x is s times the norm's weights; its scale waits until the end.
  __device__ void load_normed(const RelayLinear& s, const RelayPlace& place) {
    const int last = s.k / 4 - 1;
    const auto place_of = [&](int j) { return min(thread_ + j * kRelayThreads, last); };
    float4 w[kNormReads];  // here before the words
#pragma unroll
    for (int j = 0; j < kNormReads; ++j) {
      w[j] = __ldg(reinterpret_cast<const float4*>(s.norm_w) + place_of(j));
    }
    if (s.a != nullptr) {
#pragma unroll
      for (int j = 0; j < kNormReads; ++j) {
        residual_[j] = __ldcg(reinterpret_cast<const float4*>(s.a) + place_of(j));
      }
    } else if (kRanked && s.summed) {
      ranks_.add_to(residual_, place.in_tag, place_of);
    } else {
      const auto* from = reinterpret_cast<const uint4*>(place.in);
      uint4 v[kNormReads];
      wait_words(v, place.in_tag, [&](int j) { return from + place_of(j); });
#pragma unroll
      for (int j = 0; j < kNormReads; ++j) add_words(residual_[j], v[j]);
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kNormReads; ++j) {
      const float4 r = residual_[j];
      if (thread_ + j * kRelayThreads <= last) {
        sum += r.x * r.x + r.y * r.y + r.z * r.z + r.w * r.w;
      }
      put_x(s, thread_ + j * kRelayThreads, place_of(j),
            ptx::pack<__nv_bfloat16>(r.x * w[j].x, r.y * w[j].y),
            ptx::pack<__nv_bfloat16>(r.z * w[j].z, r.w * w[j].w));
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffff, sum, mask);
    if (thread_ % 32 == 0) squares_[thread_ / 32] = sum;
    if (s.sum == nullptr || blockIdx.x != 0) return;
#pragma unroll
    for (int j = 0; j < kNormReads; ++j) {
      reinterpret_cast<float4*>(s.sum)[place_of(j)] = residual_[j];
    }
  }

  RelaySums ranks_;
  uint8_t* const x_;
  float* const sums_;
  float* const squares_;
  const int thread_;
  int begin_ = 0;  // of this CTA's outputs
  int count_ = 0;
  int rows_[kRelayWeights] = {};  // per weight
  int slots_[kRelayWeights] = {};
  uint32_t starts_[kRelayWeights] = {};  // low bits of the rows' first addresses
  Output output_ = {};                   // this thread's first
  float4 residual_[kNormReads] = {};     // the newest norm's s, in this thread's reading order
};

}  // namespace braid::cuda
