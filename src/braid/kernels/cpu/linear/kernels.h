#pragma once

#include <cstddef>
#include <cstdint>

#include "braid/tensor/dtype.h"

// Between linear.cc, which is compiled for any machine, and the *_simd.cc files, which are compiled
// for each LinearIsa: plain structs and functions only.
namespace braid::cpu::linear_detail {

// A dtype's operands in inner products, beside the codes.
//   real       nothing: weights are f32, f16 or bf16
//   offset     x = scale * (code - constant), one scale per 32 elements
//   minimum    x = scale * code + min
//   halves     offset with a scale for each 16 elements
enum class Kind : uint8_t { real, offset, minimum, halves };

[[gnu::always_inline]] constexpr Kind kind_of(DType dtype) {
  switch (dtype) {
    case DType::q8_0:
    case DType::q4_0:
    case DType::q5_0:
      return Kind::offset;
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return Kind::minimum;
    case DType::q6_k:
      return Kind::halves;
    default:
      return Kind::real;
  }
}

// Packed x: tiles of T rows of x (the last tile may have fewer), one after the other.
//   real: per 16 columns f32 [T][16], zeros behind K
//   else: per block of 32 columns the codes, then dwords [stats][T].
//
// Codes as digits, for the stream path, whose weight codes stay bytes: int8 high digits [T][32],
// low digits [T][32], where a code is kDigitBase * high + low. Stats:
//         f32 scale and offset:  i32 bias = -constant * sum of codes
//                       minimum: f32 sum  = scale * sum of codes
//                       halves:  i32 bias of the first and of the second 16
// Codes as words, for the panel path, whose unpacked weights are words without the constant: int16
// [T][32], of each four columns in the order 0, 2, 1, 3. Stats: f32 scale; minimum: f32 sum.
//
// An odd base makes digits of -127..127 stand for every code up to kMaxCode exactly once; -128
// would have no negative, which the signed product of lanes.h needs. A block's sum of products with
// 8-bit weight codes stays within 32 * 255 * kMaxCode < 2^28, and so does a bias: i32 never
// overflows.
constexpr int kRealBlock = 16;
constexpr int kDigitBase = 255;
constexpr int kMaxCode = 127 * kDigitBase + 127;  // 32512
constexpr int kCodeBytes = 64;                    // bytes per row's block, digits or words
enum class Codes : uint8_t { digits, words };
[[gnu::always_inline]] constexpr int stats_of(Kind kind, Codes codes) {
  if (codes == Codes::words) return kind == Kind::minimum ? 2 : 1;
  return kind == Kind::halves ? 3 : 2;
}
// K is any number of columns for real, else a multiple of 32.
[[gnu::always_inline]] constexpr int64_t packed_bytes_per_row(Kind kind, Codes codes, int64_t K) {
  return kind == Kind::real ? (K + kRealBlock - 1) / kRealBlock * kRealBlock * 4
                            : K / 32 * (kCodeBytes + 4 * stats_of(kind, codes));
}

struct PackArgs {
  const float* x;  // [M, K], rows ldx apart
  int64_t ldx, M, K;
  const int32_t* rows;  // [M] row numbers in place of 0 .. M - 1, or null

  [[gnu::always_inline]] const float* row(int64_t t) const {
    return x + (rows ? rows[t] : t) * ldx;
  }

  int64_t tile;  // rows of x per tile
  DType dtype;   // dtype of the weight for this x
  Codes codes;
  std::byte* packed;
};

struct WeightArgs {
  const std::byte* data;  // [N, K] in dtype, rows `stride` bytes apart
  int64_t stride, N;
  int64_t row_bytes;  // for K elements
  DType dtype;
  const float* bias;  // [N] or null
  float* y;           // [M, N], rows ldy apart
  int64_t ldy;
  const std::byte* packed;  // x packed for dtype
};

enum class Activation : uint8_t { none, silu, gelu_tanh };

struct RunArgs {
  const WeightArgs* weights;
  int num_weights;
  Activation gate;        // not none: two weights, (gate, up)
  const float* residual;  // [M, N] or null
  int64_t ld_residual;
  int64_t M, K;
  int64_t chunk;       // rows of x per work item, a multiple of every tile
  int64_t k_block;     // columns unpacked at a time
  std::byte* scratch;  // this thread's: sums, then unpacked panels
};

// A machine's kernels. Work items of a run are numbered weight by weight; inside a weight chunk by
// chunk of x, and inside a chunk panel by panel of weight rows.
struct Kernels {
  int64_t (*stream_items)(const RunArgs& args);
  int panel_rows;            // weight rows per work item of the panel path
  int (*tile)(DType dtype);  // rows of x per tile on the panel path
  void (*pack)(const PackArgs& args, int64_t tile_begin, int64_t tile_end);
  void (*run_stream)(const RunArgs& args, int64_t item_begin, int64_t item_end);
  void (*run_panels)(const RunArgs& args, int64_t item_begin, int64_t item_end);
};

// Upper bounds over all machines, for buffers.
constexpr int kMaxLanes = 16;
constexpr int kMaxPanelRows = 2 * kMaxLanes;
constexpr int kMaxTile = 12;
constexpr int kMaxStreamRows = 8;  // rows of x
constexpr int kTileMultiple = 24;  // a multiple of every tile

// Bytes of an unpacked panel per 32 columns: 32 words per row and up to two f32 vectors.
[[gnu::always_inline]] constexpr int64_t panel_block_bytes(Kind kind, int rows) {
  return kind == Kind::real ? int64_t{128} * rows
                            : int64_t{64 + 4 * (kind == Kind::offset ? 1 : 2)} * rows;
}

}  // namespace braid::cpu::linear_detail

namespace braid::cpu {
// Defined by kernels_simd.cc for each LinearIsa of the build.
namespace baseline {
const linear_detail::Kernels& linear_kernels();
}
namespace avx2 {
const linear_detail::Kernels& linear_kernels();
}
namespace avx2_vnni {
const linear_detail::Kernels& linear_kernels();
}
namespace avx512 {
const linear_detail::Kernels& linear_kernels();
}
namespace avx512_vnni {
const linear_detail::Kernels& linear_kernels();
}
}  // namespace braid::cpu
