#include <algorithm>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/pointwise/rows.h"

namespace braid::cpu {
namespace {

using namespace testing;

TEST(Embedding, EveryDtype) {
  std::mt19937 random(20);
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (dtype == DType::i32) continue;
    const int64_t cols = info(dtype).block_elems == 1 ? 577 : 768;
    constexpr int64_t kVocabulary = 11;
    SCOPED_TRACE(name(dtype));
    const int64_t row_bytes = bytes_of(dtype, cols) + 6;  // rows of a slice lie apart
    std::vector<std::byte> table(kVocabulary * row_bytes);
    for (std::byte& x : table) x = static_cast<std::byte>(random() & 0x3f);  // finite in any format
    const std::vector<int32_t> ids{10, 0, 3, 3, 7};
    std::vector<float> want(ids.size() * cols);
    for (size_t t = 0; t < ids.size(); ++t) {
      dequantize_row(dtype, &table[ids[t] * row_bytes], &want[t * cols], cols);
    }
    for (float scale : {1.0f, 24.0f}) {
      for (int threads : {1, 2, 3, 4}) {
        std::vector<float> y = poisoned(static_cast<int64_t>(ids.size()) * (cols + 1));
        for (int i = 0; i < threads; ++i) {
          embedding({.ids = ids.data(),
                     .table = table.data(),
                     .dtype = dtype,
                     .row_bytes = row_bytes,
                     .y = y.data(),
                     .tokens = static_cast<int64_t>(ids.size()),
                     .cols = cols,
                     .y_stride = cols + 1,
                     .scale = scale},
                    Team{i, threads, nullptr});
        }
        for (size_t t = 0; t < ids.size(); ++t) {
          for (int64_t c = 0; c < cols; ++c) {
            ASSERT_EQ(y[t * (cols + 1) + c], want[t * cols + c] * scale) << t << ", " << c;
          }
          ASSERT_TRUE(std::isnan(y[t * (cols + 1) + cols]));
        }
      }
    }
  }
}

TEST(GatherRows, Bitwise) {
  std::mt19937 random(21);
  for (int64_t cols : {1, 255, 256, 600}) {
    const std::vector<float> x = random_floats(random, 9 * (cols + 2));
    for (int threads : {1, 2, 3, 4}) {
      const int32_t first = threads == 3 ? 100 : 0;  // row numbers of a later micro-batch
      const std::vector<int32_t> index{first + 8, first, first, first + 5};
      std::vector<float> y = poisoned(4 * cols);
      for (int i = 0; i < threads; ++i) {
        gather_rows({.x = x.data(),
                     .index = index.data(),
                     .y = y.data(),
                     .rows = 4,
                     .cols = cols,
                     .first = first,
                     .x_stride = cols + 2,
                     .y_stride = cols},
                    Team{i, threads, nullptr});
      }
      for (int64_t t = 0; t < 4; ++t) {
        ASSERT_EQ(
            std::memcmp(&y[t * cols], &x[(index[t] - first) * (cols + 2)], cols * sizeof(float)),
            0);
      }
    }
  }
}

TEST(KvAppend, WritesItsSlotsOnly) {
  std::mt19937 random(22);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (int64_t D : {8, 64, 80, 72}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << " D " << D);
      constexpr int64_t kHeads = 3, kSlots = 40;
      const int64_t width = kHeads * D;
      const std::vector<int32_t> slots{17, -1, 3, 39, 0};
      const auto T = static_cast<int64_t>(slots.size());
      std::vector<float> k = random_floats(random, T * (width + 4), 10);
      std::vector<float> v = random_floats(random, T * width, 1e-6f);  // subnormal in f16
      k[1] = 1e6f;                                                     // infinite in f16
      v[2] = kNaN;
      std::vector<std::byte> want_k(bytes_of(dtype, kSlots * width), std::byte{0xa5});
      std::vector<std::byte> want_v = want_k;
      for (int64_t t = 0; t < T; ++t) {
        if (slots[t] < 0) continue;
        const int64_t at = bytes_of(dtype, slots[t] * width);
        quantize_row(dtype, &k[t * (width + 4)], &want_k[at], width);
        quantize_row(dtype, &v[t * width], &want_v[at], width);
      }
      std::vector<std::byte> cache_k, cache_v;
      sweep_teams(
          [&] {
            cache_k.assign(want_k.size(), std::byte{0xa5});
            cache_v = cache_k;
          },
          [&](const Team& team, Isa isa) {
            kv_append({.k = k.data(),
                       .v = v.data(),
                       .slots = slots.data(),
                       .cache = {cache_k.data(), cache_v.data(), dtype, 8, kHeads, D},
                       .tokens = T,
                       .k_stride = width + 4,
                       .v_stride = width},
                      team, isa);
          },
          [&] {
            EXPECT_TRUE(cache_k == want_k);
            EXPECT_TRUE(cache_v == want_v);
          });
    }
  }
}

}  // namespace
}  // namespace braid::cpu
