#pragma once

#include "braid/kernels/cuda/attention/device/hopper_launch.h"
#include "braid/kernels/cuda/ptx/tma.h"

// Boxes for the copy engine, which bring a tile of keys or values to shared memory.
namespace braid::cuda {

// Place of a key tile for the copy engine.
struct KeyTile {
  int segment;   // segment of the first key
  int run_end;   // past the run's last segment for a tile over several segments, else 0
  int key;       // first key, in the segment
  int first;     // rows from the first of several segments
  int valid;     // keys of the run from `key` on
  int arriving;  // rows brought by boxes, some twice
  int page;      // page of box `lane`, with paged keys
};

// A single warp issues all boxes; each CTA of a cluster brings a share of the rows to every CTA.
template <class Traits>
class KeyBoxes {
 public:
  __device__ KeyBoxes(const HopperParams& p, int lane, int rank)
      : p_(p), lane_(lane), rank_(rank) {}

  // Page of box `lane` in the tile from `key` on. Asked a tile ahead: a look-up would hold up the
  // copies.
  __device__ int page_of(int b, int segment, int key, int length) const {
    const int page_size = p_.plan.page_size;
    if (page_size == 0) return 0;
    const KvTensor& s = p_.plan.kv[segment];
    const int t = key + lane_ * p_.kv_box_rows;
    // Past the end: a page outside the map, for which zeros arrive.
    return t < length
               ? s.page_table[int64_t{b} * s.page_table_stride + (t >> (31 - __clz(page_size)))]
               : s.num_pages;
  }

  // Rows that arrive for a tile.
  __device__ int arriving_rows(const KeyTile& tile) const {
    int rows = 0;
    int segment = tile.segment;
    int key = tile.key;
    for (int row = 0; row < Traits::kBlockN; ++segment, key = 0) {
      const Part part = part_of(tile, segment, key, row);
      rows += part.height * part.boxes;
      row += part.rows;
    }
    return rows;
  }

  // Issues a whole tile's boxes, or the boxes for a tile's parts in single pages or segments.
  template <int kChunks>
  __device__ void load(int b, int head, const KeyTile& tile,
                       const CUtensorMap (*maps)[kMaxKvSegments], uint8_t* smem,
                       uint64_t* barrier) {
    const AttentionPlan& plan = p_.plan;
    // Code for short calls comes first: a 10 us call reads its code from cold memory.
    if (plan.page_size == 0 && tile.run_end == 0) {
      const int row = Traits::kCluster > 1 ? rank_ * kBoxRows : 0;
      if (ptx::elect_one()) {
#pragma unroll(kChunks < 4 ? kChunks : 1)  // four at once spill
        for (int c = 0; c < kChunks; ++c) {
          load_box(smem + c * Traits::kKvChunkBytes + row * 128, maps[0] + tile.segment, barrier,
                   c * 64, tile.key + row, head, b);
        }
      }
      __syncwarp();
    } else if (plan.page_size != 0) {
      load_pages<kChunks>(head, tile, maps[0] + tile.segment, smem, barrier);
    } else {
      load_parts<kChunks>(b, head, tile, maps, smem, barrier);
    }
  }

 private:
  static constexpr int kBoxRows = Traits::kBlockN / Traits::kCluster;
  static_assert(kBoxRows >= kPartRows);

  // The part of a tile within a single segment, and the boxes for the part: boxes are as high as
  // possible, and the last box moves up to end with the part.
  struct Part {
    int rows;
    int map;
    int height;
    int boxes;
  };
  __device__ Part part_of(const KeyTile& tile, int segment, int key, int row) const {
    Part part;
    part.rows = Traits::kBlockN - row;
    if (row == 0) {
      part.rows = tile.first;
    } else if (segment + 1 < tile.run_end) {
      part.rows = min_i(part.rows, p_.plan.kv[segment].length - key);
    }
    if (part.rows >= kBoxRows) {
      part.map = 0;
      part.height = kBoxRows;
      part.boxes = part.rows > kBoxRows ? Traits::kCluster : 1;
    } else {
      part.map = part.rows >= kPartRows ? 1 : 2;
      part.height = part.map == 1 ? kPartRows : kKeyPiece;
      part.boxes = (part.rows + part.height - 1) >> (part.map == 1 ? 5 : 3);
    }
    return part;
  }
  static_assert(kPartRows == 1 << 5 && kKeyPiece == 1 << 3 && Traits::kCluster <= 2);

  // Two parts at a time, half of the lanes each.
  template <int kChunks>
  __device__ void load_parts(int b, int head, const KeyTile& tile,
                             const CUtensorMap (*maps)[kMaxKvSegments], uint8_t* smem,
                             uint64_t* barrier) {
    const int lane = lane_ % 16;
    const int c = lane % kChunks;
    const int box = lane / kChunks;
    int segment = tile.segment;
    int key = tile.key;
    for (int row = 0; row < Traits::kBlockN;) {
      Part part = part_of(tile, segment, key, row);
      const int second = row + part.rows;
      int my_segment = segment, my_key = key, my_row = row;
      ++segment;
      key = 0;
      row = second;
      if (second < Traits::kBlockN) {
        const Part next = part_of(tile, segment, 0, second);
        row += next.rows;
        if (lane_ >= 16) {
          part = next;
          my_segment = segment;
          my_key = 0;
          my_row = second;
        }
        ++segment;
      } else if (lane_ >= 16) {
        part.boxes = 0;
      }
      if (box < part.boxes && (Traits::kCluster == 1 || lane % Traits::kCluster == rank_)) {
        const int at = min_i(box * part.height, part.rows - part.height);
        load_box(smem + c * Traits::kKvChunkBytes + (my_row + at) * 128,
                 maps[part.map] + my_segment, barrier, c * 64, my_key + at, head, b);
      }
      __syncwarp();
    }
  }

  __device__ static void load_box(uint8_t* smem, const CUtensorMap* map, uint64_t* barrier,
                                  int column, int key, int head, int b) {
    if constexpr (Traits::kCluster > 1) {
      ptx::tma_multicast_4d(smem, map, barrier, column, key, head, b, (1 << Traits::kCluster) - 1);
    } else {
      ptx::tma_load_4d(smem, map, barrier, column, key, head, b);
    }
  }

  template <int kChunks>
  __device__ void load_pages(int head, const KeyTile& tile, const CUtensorMap* map, uint8_t* smem,
                             uint64_t* barrier) {
    static_assert(Traits::kBlockN / 16 * kChunks <= 32, "a lane for each box");
    const int page = __shfl_sync(0xffffffff, tile.page, lane_ / kChunks);
    const int row = lane_ / kChunks * p_.kv_box_rows;
    if (row < Traits::kBlockN) {
      ptx::tma_load_4d(smem + lane_ % kChunks * Traits::kKvChunkBytes + row * 128, map, barrier,
                       lane_ % kChunks * 64, (tile.key + row) & (p_.plan.page_size - 1), head,
                       page);
    }
  }

  const HopperParams& p_;
  const int lane_;
  const int rank_;
};

}  // namespace braid::cuda
