#include "braid/kernels/cpu/linear/isa_kernels.h"

namespace braid::cpu::BRAID_ISA {
namespace {

constexpr int kVectors = 32 / kLanes;  // per block of 32 columns

BRAID_INLINE int32_t max_lane_i(VecI v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32((__m512i)v);
#elif defined(__AVX2__)
  __m128i m =
      _mm_max_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
#else
  int32_t m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
#endif
}

// To nearest even; |v| < 2^22.
BRAID_INLINE VecI round_to_int(Vec v) {
#if defined(__AVX512F__)
  return (VecI)_mm512_cvtps_epi32(v);
#elif defined(__AVX2__)
  return (VecI)_mm256_cvtps_epi32(v);
#else
  const Vec shifted = v + splat(kRoundShift);
  return reinterpret_cast<VecI>(shifted) - reinterpret_cast<VecI>(splat(kRoundShift));
#endif
}

// The low bytes of all lanes.
BRAID_INLINE void store_bytes(std::byte* out, VecI v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8((__m512i)v));
#else
  typedef int8_t Bytes __attribute__((vector_size(kLanes)));
  const Bytes bytes = __builtin_convertvector(v, Bytes);
  std::memcpy(out, &bytes, kLanes);
#endif
}

// The sum of 16 signed bytes.
BRAID_INLINE int32_t sum16(const std::byte* codes) {
#if defined(__AVX2__)
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m128i biased = _mm_xor_si128(v, _mm_set1_epi8(-128));
  const __m128i sums = _mm_sad_epu8(biased, _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e))) - 16 * 128;
#else
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += static_cast<int8_t>(codes[i]);
  return sum;
#endif
}

[[maybe_unused]] constexpr int column_of_word(int i) {
  return i % 4 == 1 || i % 4 == 2 ? i ^ 3 : i;
}

// The low words of a block's codes, for each four columns in the order 0, 2, 1, 3.
BRAID_INLINE void store_words(std::byte* out, const VecI (&codes)[kVectors]) {
#if defined(__AVX512F__)
  const VecS order = [] {
    VecS v;
    for (int i = 0; i < 32; ++i) v[i] = static_cast<int16_t>(2 * column_of_word(i));
    return v;
  }();
  _mm512_storeu_si512(
      out, _mm512_permutex2var_epi16((__m512i)codes[0], (__m512i)order, (__m512i)codes[1]));
#elif defined(__AVX2__)
  for (int i = 0; i < kVectors; i += 2) {
    // Packing keeps the halves of both vectors apart.
    __m256i words = _mm256_packs_epi32((__m256i)codes[i], (__m256i)codes[i + 1]);
    words = _mm256_permute4x64_epi64(words, 0xd8);
    words = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
    store_i(out + 16 * i, (VecI)words);
  }
#else
  for (int i = 0; i < 32; ++i) {
    const int column = column_of_word(i);
    const auto word = static_cast<int16_t>(codes[column / kLanes][column % kLanes]);
    std::memcpy(out + 2 * i, &word, 2);
  }
#endif
}

// A block's codes round(x / scale), with scale = max |x| / kMaxCode. Largest magnitudes are
// compared as integers, so that a NaN is the largest of all and comes out as the scale.
struct BlockCodes {
  VecI codes[kVectors];
  float scale;

  BRAID_INLINE explicit BlockCodes(const float* x) {
    constexpr float kMax = linear_detail::kMaxCode;
    Vec v[kVectors];
    VecI largest{};
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      v[i] = load(x + i * kLanes);
      const VecI magnitude = reinterpret_cast<VecI>(v[i]) & splat_i(0x7fffffff);
      largest = magnitude > largest ? magnitude : largest;
    }
    float max = __builtin_bit_cast(float, max_lane_i(largest));
    if (max < 1e-33f) max = 0;  // its inverse could overflow, its scale be subnormal
    const float inverse = max == 0 ? 0 : kMax / max;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) codes[i] = round_to_int(v[i] * splat(inverse));
    // NaN for an infinite x: digits and words of such codes differ.
    scale = max * (1 / kMax) + (max - max);
  }

  BRAID_INLINE int32_t sum() const {
    VecI all = codes[0];
    for (int i = 1; i < kVectors; ++i) all += codes[i];
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)all);
#else
    int32_t total = all[0];
    for (int i = 1; i < kLanes; ++i) total += all[i];
    return total;
#endif
  }

  BRAID_INLINE void store_digits(std::byte* high, std::byte* low) const {
    constexpr int kBase = linear_detail::kDigitBase;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      // No code is half way between two multiples of an odd base: f32 always finds the nearest.
      const VecI digit = round_to_int(to_f32(codes[i]) * splat(1.0f / kBase));
      store_bytes(high + i * kLanes, digit);
      store_bytes(low + i * kLanes, codes[i] - next_digit(digit));
    }
  }
};

// The logarithm of the constant subtracted from each code, or -1.
int shift_of(DType dtype) {
  switch (dtype) {
    case DType::q8_0:
      return FormatQ8_0::kSigned ? -1 : FormatQ8_0::kShift;
    case DType::q4_0:
      return FormatQ4_0::kShift;
    case DType::q5_0:
      return FormatQ5_0::kShift;
    case DType::q6_k:
      return FormatQ6_K::kShift;
    default:
      return -1;
  }
}

template <Kind kind>
void pack_digits(const PackArgs& args, int shift, int64_t t0, int64_t rows, std::byte* tile) {
  constexpr int kCodeBytes = linear_detail::kCodeBytes;
  const int64_t block_bytes =
      rows * (kCodeBytes + 4 * linear_detail::stats_of(kind, Codes::digits));
  const auto bias = [&](int32_t sum) { return shift < 0 ? 0 : -sum * (1 << shift); };
  for (int64_t t = 0; t < rows; ++t) {
    const float* x = args.row(t0 + t);
    std::byte* high_digits = tile + 32 * t;
    std::byte* stats = tile + kCodeBytes * rows + 4 * t;
    for (int64_t k = 0; k < args.K; k += 32, high_digits += block_bytes, stats += block_bytes) {
      std::byte* low_digits = high_digits + 32 * rows;
      const BlockCodes block(x + k);
      block.store_digits(high_digits, low_digits);
      const float scale = block.scale;
      const auto sum = [&](int i) {
        return linear_detail::kDigitBase * sum16(high_digits + i) + sum16(low_digits + i);
      };
      const int32_t low = sum(0), high = sum(16);
      std::memcpy(stats, &scale, 4);
      if constexpr (kind == Kind::minimum) {
        const float scaled = scale * static_cast<float>(low + high);
        std::memcpy(stats + 4 * rows, &scaled, 4);
      } else if constexpr (kind == Kind::offset) {
        const int32_t biases = bias(low + high);
        std::memcpy(stats + 4 * rows, &biases, 4);
      } else {
        const int32_t biases[2] = {bias(low), bias(high)};
        std::memcpy(stats + 4 * rows, &biases[0], 4);
        std::memcpy(stats + 8 * rows, &biases[1], 4);
      }
    }
  }
}

void pack_words(const PackArgs& args, Kind kind, int64_t t0, int64_t rows, std::byte* tile) {
  constexpr int kCodeBytes = linear_detail::kCodeBytes;
  const bool sums = kind == Kind::minimum;
  const int64_t block_bytes = rows * (kCodeBytes + 4 * linear_detail::stats_of(kind, Codes::words));
  for (int64_t t = 0; t < rows; ++t) {
    const float* x = args.row(t0 + t);
    std::byte* words = tile + kCodeBytes * t;
    std::byte* stats = tile + kCodeBytes * rows + 4 * t;
    for (int64_t k = 0; k < args.K; k += 32, words += block_bytes, stats += block_bytes) {
      const BlockCodes block(x + k);
      store_words(words, block.codes);
      std::memcpy(stats, &block.scale, 4);
      if (sums) {
        const float sum = block.scale * static_cast<float>(block.sum());
        std::memcpy(stats + 4 * rows, &sum, 4);
      }
    }
  }
}

void pack_floats(const PackArgs& args, int64_t t0, int64_t rows, std::byte* tile) {
  constexpr int kBlock = linear_detail::kRealBlock;
  float* block = reinterpret_cast<float*>(tile);
  for (int64_t k = 0; k < args.K; k += kBlock, block += kBlock * rows) {
    const int cols = static_cast<int>(args.K - k < kBlock ? args.K - k : kBlock);
    for (int64_t t = 0; t < rows; ++t) {
      const float* x = args.row(t0 + t) + k;
      float* out = block + kBlock * t;
      if (cols == kBlock) {
        for (int i = 0; i < kBlock; i += kLanes) store(out + i, load(x + i));
      } else {
        for (int i = 0; i < kBlock; ++i) out[i] = i < cols ? x[i] : 0;
      }
    }
  }
}

}  // namespace

void linear_pack(const PackArgs& args, int64_t tile_begin, int64_t tile_end) {
  const Kind kind = linear_detail::kind_of(args.dtype);
  const int shift = shift_of(args.dtype);
  const int64_t row_bytes = linear_detail::packed_bytes_per_row(kind, args.codes, args.K);
  for (int64_t i = tile_begin; i < tile_end; ++i) {
    const int64_t t0 = i * args.tile;
    const int64_t rows = args.M - t0 < args.tile ? args.M - t0 : args.tile;
    std::byte* tile = args.packed + t0 * row_bytes;
    if (kind != Kind::real && args.codes == Codes::words) {
      pack_words(args, kind, t0, rows, tile);
      continue;
    }
    switch (kind) {
      case Kind::real:
        pack_floats(args, t0, rows, tile);
        break;
      case Kind::offset:
        pack_digits<Kind::offset>(args, shift, t0, rows, tile);
        break;
      case Kind::minimum:
        pack_digits<Kind::minimum>(args, shift, t0, rows, tile);
        break;
      case Kind::halves:
        pack_digits<Kind::halves>(args, shift, t0, rows, tile);
        break;
    }
  }
}

}  // namespace braid::cpu::BRAID_ISA
