#include "braid/backend/cuda/upload.h"

#include <fmt/format.h>

#include <random>

#include "backend/cuda/sampling/device_testing.h"
#include "braid/base/error.h"

namespace braid::cuda::test {
namespace {

TEST(Upload, BytesArrivePackedWhateverTheirSizes) {
  REQUIRE_DEVICE();
  std::mt19937 random(99);
  struct Case {
    int64_t rows, cols, gap;  // elements; gap: bytes between rows
    DType dtype;
  };
  const std::vector<Case> cases = {
      {1, 1, 0, DType::f32},       {3, 5, 0, DType::bf16},     {7, 13, 6, DType::bf16},
      {1000, 37, 2, DType::f16},   {129, 4096, 0, DType::f32}, {129, 4096, 4096, DType::f32},
      {64, 256, 36, DType::q4_k},  {1, 300001, 0, DType::f32}, {5, 100003, 14, DType::bf16},
      {40000, 1, 62, DType::bf16}, {0, 8, 0, DType::f32}};
  for (const int64_t piece : {1000, 65536, 4 << 20}) {
    for (const int threads : {1, 4}) {
      Uploader uploader(0, {.threads = threads, .piece_bytes = piece});
      for (int round = 0; round < 2; ++round) {
        std::vector<std::vector<std::byte>> sources;
        std::vector<std::unique_ptr<DeviceArray<std::byte>>> targets;
        for (const Case& c : cases) {
          const int64_t width = bytes_of(c.dtype, c.cols);
          std::vector<std::byte> bytes(static_cast<size_t>(c.rows * (width + c.gap)));
          for (std::byte& b : bytes) b = static_cast<std::byte>(random());
          sources.push_back(std::move(bytes));
          targets.push_back(
              std::make_unique<DeviceArray<std::byte>>(static_cast<size_t>(c.rows * width + 16)));
          uploader.copy(targets.back()->data(),
                        {sources.back().data(), c.dtype, Shape{c.rows, c.cols}, width + c.gap});
        }
        uploader.finish();
        for (size_t i = 0; i < cases.size(); ++i) {
          const Case& c = cases[i];
          const int64_t width = bytes_of(c.dtype, c.cols);
          const auto got = targets[i]->get();
          for (int64_t r = 0; r < c.rows; ++r) {
            ASSERT_EQ(std::memcmp(got.data() + r * width, sources[i].data() + r * (width + c.gap),
                                  static_cast<size_t>(width)),
                      0)
                << fmt::format("case {} row {} pieces of {} on {} threads", i, r, piece, threads);
          }
          for (size_t b = got.size() - 16; b < got.size(); ++b) {
            ASSERT_EQ(got[b], std::byte{0xa5}) << "past the end";
          }
        }
      }
    }
  }
}

TEST(Upload, WhatIsNotFinishedIsDropped) {
  REQUIRE_DEVICE();
  std::vector<std::byte> source(8 << 20);
  const DeviceArray<std::byte> target(source.size());
  Uploader uploader(0, {.threads = 2, .piece_bytes = 4096});
  uploader.copy(target.data(), make_view(source.data(), DType::f32, {2 << 20}));
}

TEST(Upload, AFailureIsReportedOnceAndTheNextCopyWorks) {
  REQUIRE_DEVICE();
  std::vector<std::byte> source(4096, std::byte{7});
  const TensorView view = make_view(source.data(), DType::f32, {1024});
  const DeviceArray<std::byte> target(source.size());
  Uploader broken(1000, {.threads = 2});
  broken.copy(target.data(), view);
  EXPECT_THROW(broken.finish(), Error) << "there is no device 1000";
  broken.finish();
  Uploader good(0, {.threads = 2});
  good.copy(target.data(), view);
  good.finish();
  EXPECT_EQ(target.get(), source);
}

}  // namespace
}  // namespace braid::cuda::test
