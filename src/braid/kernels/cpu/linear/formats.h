#pragma once

// Each block format, for kLanes rows at once: unpack() reads a unit of every row and calls
//   fn(block, codes[8], first, second)
// for the unit's blocks of 32 columns in order. codes[i] holds columns 4i..4i+3, a byte each;
// first is the scale; second depends on Kind: nothing, the minimum, or the second half's scale.
// For *_simd.cc only.

#include "braid/kernels/cpu/linear/kernels.h"
#include "braid/kernels/cpu/linear/lanes.h"
#include "braid/tensor/quant.h"

namespace braid::cpu::BRAID_ISA {

using linear_detail::Kind;

constexpr int32_t kLowNibbles = 0x0f0f0f0f;

BRAID_INLINE void split_nibbles(const VecI (&packed)[4], VecI (&codes)[8]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    codes[i] = packed[i] & splat_i(kLowNibbles);
    codes[i + 4] = shift_right(packed[i], 4) & splat_i(kLowNibbles);
  }
}

// Formats with 32 elements: the constant (kShift: its logarithm) is subtracted from each code.
struct FormatQ8_0 {
  static constexpr Kind kKind = Kind::offset;
  static constexpr bool kSigned = !kWideCodes;  // else biased by 128
  static constexpr int kBytes = sizeof(BlockQ8_0), kBlocks = 1, kCodeBits = 8, kShift = 7;
  template <class Rows, class Fn>
  static BRAID_INLINE void unpack(const Rows& rows, Fn fn) {
    VecI codes[8];
    gather4(rows, 2, codes);
    gather4(rows, 18, codes + 4);
    if constexpr (!kSigned) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) codes[i] ^= splat_i(static_cast<int32_t>(0x80808080));
    }
    fn(0, codes, low_f16(gather(rows, 0)), Vec{});
  }
};

template <class Block, Kind kind>
struct FormatNibbles {
  static constexpr bool kMinimum = kind == Kind::minimum;
  static constexpr bool kFifthBit = sizeof(Block) - (kMinimum ? 4 : 2) == 20;
  static constexpr Kind kKind = kind;
  static constexpr bool kSigned = false;
  static constexpr int kBytes = sizeof(Block), kBlocks = 1, kCodeBits = kFifthBit ? 5 : 4;
  static constexpr int kShift = kCodeBits - 1;
  template <class Rows, class Fn>
  static BRAID_INLINE void unpack(const Rows& rows, Fn fn) {
    VecI packed[4], codes[8];
    gather4(rows, kBytes - 16, packed);
    split_nibbles(packed, codes);
    if constexpr (kFifthBit) {
      const VecI bits = gather(rows, kBytes - 20);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) codes[i] |= fifth_bits(bits, i);
    }
    const VecI head = gather(rows, 0);
    fn(0, codes, low_f16(head), kMinimum ? high_f16(head) : Vec{});
  }
};
using FormatQ4_0 = FormatNibbles<BlockQ4_0, Kind::offset>;
using FormatQ4_1 = FormatNibbles<BlockQ4_1, Kind::minimum>;
using FormatQ5_0 = FormatNibbles<BlockQ5_0, Kind::offset>;
using FormatQ5_1 = FormatNibbles<BlockQ5_1, Kind::minimum>;

// Scales and minima of a Q4_K or Q5_K block: the block's first 16 bytes, transposed.
struct ScalesK {
  VecI dword[4];
  Vec d, dmin;
  template <class Rows>
  BRAID_INLINE explicit ScalesK(const Rows& rows) {
    gather4(rows, 0, dword);
    d = low_f16(dword[0]);
    dmin = high_f16(dword[0]);
  }
  BRAID_INLINE VecI bits(int i, int shift, int mask) const {
    return shift_right(dword[i], shift) & splat_i(mask);
  }
  // unpack_scale_min_k in all lanes.
  BRAID_INLINE Vec scale(int group) const {
    const int byte = 8 * (group % 4);
    const VecI six = group < 4 ? bits(1, byte, 63) : bits(3, byte, 15) | bits(1, byte + 6, 3) << 4;
    return d * to_f32(six);
  }
  BRAID_INLINE Vec minimum(int group) const {
    const int byte = 8 * (group % 4);
    const VecI six =
        group < 4 ? bits(2, byte, 63) : bits(3, byte + 4, 15) | bits(2, byte + 6, 3) << 4;
    return Vec{} - dmin * to_f32(six);
  }
};

template <class Block>
struct FormatK {
  static constexpr Kind kKind = Kind::minimum;
  static constexpr bool kSigned = false;
  static constexpr bool kFifthBit = sizeof(Block) == sizeof(BlockQ5_K);
  static constexpr int kBytes = sizeof(Block), kBlocks = 8, kCodeBits = kFifthBit ? 5 : 4;
  static constexpr int kShift = 0;
  template <class Rows, class Fn>
  static BRAID_INLINE void unpack(const Rows& rows, Fn fn) {
    const ScalesK scales(rows);
    VecI high[8];
    if constexpr (kFifthBit) {
      gather4(rows, 16, high);
      gather4(rows, 32, high + 4);
    }
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      VecI packed[8];
      gather4(rows, kBytes - 128 + 32 * pair, packed);
      gather4(rows, kBytes - 112 + 32 * pair, packed + 4);
#pragma GCC unroll 2
      for (int group = 2 * pair; group < 2 * pair + 2; ++group) {
        VecI codes[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
          codes[i] = shift_right(packed[i], group % 2 * 4) & splat_i(kLowNibbles);
          if constexpr (kFifthBit) {
            const VecI bit = group < 4 ? high[i] << (4 - group) : shift_right(high[i], group - 4);
            codes[i] |= bit & splat_i(0x10101010);
          }
        }
        fn(group, codes, scales.scale(group), scales.minimum(group));
      }
    }
  }
};
using FormatQ4_K = FormatK<BlockQ4_K>;
using FormatQ5_K = FormatK<BlockQ5_K>;

struct FormatQ6_K {
  static constexpr Kind kKind = Kind::halves;
  static constexpr bool kSigned = false;
  static constexpr int kBytes = sizeof(BlockQ6_K), kBlocks = 8, kCodeBits = 6, kShift = 5;
  template <class Rows, class Fn>
  static BRAID_INLINE void unpack(const Rows& rows, Fn fn) {
    const Vec d = high_f16(gather(rows, 206));
    VecI scales[4];
    gather4(rows, 192, scales);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      VecI low[16], high[8];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) gather4(rows, 64 * half + 16 * i, low + 4 * i);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) gather4(rows, 128 + 32 * half + 16 * i, high + 4 * i);
#pragma GCC unroll 4
      for (int quarter = 0; quarter < 4; ++quarter) {
        VecI codes[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
          const VecI bits =
              quarter < 2 ? high[i] << (4 - 2 * quarter) : shift_right(high[i], 2 * quarter - 4);
          codes[i] =
              (shift_right(low[quarter % 2 * 8 + i], quarter / 2 * 4) & splat_i(kLowNibbles)) |
              (bits & splat_i(0x30303030));
        }
        const int group = 8 * half + 2 * quarter;  // index of a group with 16 elements
        fn(4 * half + quarter, codes, d * scale(scales, group), d * scale(scales, group + 1));
      }
    }
  }

 private:
  static BRAID_INLINE Vec scale(const VecI (&scales)[4], int group) {
    return to_f32((scales[group / 4] << (24 - 8 * (group % 4))) >> 24);
  }
};

// Floats: unpack() reads 16 bytes of every row and calls fn(k, w) for its kCols columns in order.
struct FormatF32 {
  static constexpr int kCols = 4, kElemBytes = 4;
  template <class Rows, class Fn>
  static BRAID_INLINE void unpack(const Rows& rows, Fn fn) {
    VecI raw[4];
    gather4(rows, 0, raw);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) fn(i, reinterpret_cast<Vec>(raw[i]));
  }
};
struct FormatF16 {
  static constexpr int kCols = 8, kElemBytes = 2;
  template <class Rows, class Fn>
  static BRAID_INLINE void unpack(const Rows& rows, Fn fn) {
    VecI raw[4];
    gather4(rows, 0, raw);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      fn(2 * i, low_f16(raw[i]));
      fn(2 * i + 1, high_f16(raw[i]));
    }
  }
};
struct FormatBf16 {
  static constexpr int kCols = 8, kElemBytes = 2;
  template <class Rows, class Fn>
  static BRAID_INLINE void unpack(const Rows& rows, Fn fn) {
    VecI raw[4];
    gather4(rows, 0, raw);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      fn(2 * i, low_bf16(raw[i]));
      fn(2 * i + 1, high_bf16(raw[i]));
    }
  }
};

}  // namespace braid::cpu::BRAID_ISA
