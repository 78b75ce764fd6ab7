#include "braid/kernels/cuda/linear/device/dequantize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cuda/linear/skinny_case.h"
#include "braid/base/error.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {
namespace {

// The bits of the scalar reference, rounded; what lies between rows stays as it was.
TEST(Dequantize, BitsOfTheScalarReference) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  std::mt19937 rng(11);
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (dtype == DType::i32) continue;
    const int block = info(dtype).block_elems;
    for (const int k : {block, 5 * block, 16 * block, 7 * block * (block == 1 ? 9 : 1)}) {
      for (const int n : {1, 3, 130}) {
        for (const int out_gap : {0, 5}) {
          const int64_t offset = 2 * info(dtype).block_bytes, gap = info(dtype).block_bytes;
          const HostWeight w(dtype, n, k, offset, gap, rng);
          DeviceBytes device(w.bytes.size()), out(size_t(n) * (k + out_gap) * 2);
          device.upload(w.bytes.data(), w.bytes.size());
          out.poison();
          dequantize({.w = device.data + offset,
                      .dtype = dtype,
                      .row_bytes = w.row_bytes,
                      .out = out.data,
                      .out_stride = k + out_gap,
                      .n = n,
                      .k = k},
                     {});
          check_cuda(cudaDeviceSynchronize(), "dequantize");
          const auto bytes = out.download();
          std::vector<float> row(k);
          for (int i = 0; i < n; ++i) {
            const std::vector<uint8_t> packed(w.row(i), w.row(i) + bytes_of(dtype, k));
            dequantize_row(dtype, packed.data(), row.data(), k);
            for (int j = 0; j < k + out_gap; ++j) {
              uint16_t bits;
              std::memcpy(&bits, &bytes[(size_t(i) * (k + out_gap) + j) * 2], 2);
              const uint16_t expected = j < k ? to_bf16(row[j]).bits : 0xffff;
              ASSERT_EQ(bits, expected) << name(dtype) << " [" << n << ", " << k << "] at " << i
                                        << ", " << j << ": " << row[std::min(j, k - 1)];
            }
          }
        }
      }
    }
  }
}

TEST(Dequantize, BadCallsSayWhatIsWrong) {
  EXPECT_THROW(dequantize({.dtype = DType::q4_k, .n = 1, .k = 64}, {}), Error);
  EXPECT_THROW(dequantize({.dtype = DType::i32, .n = 1, .k = 64}, {}), Error);
}

}  // namespace
}  // namespace braid::cuda::test
