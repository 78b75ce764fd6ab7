// Rows that move bit by bit: against a loop on the host, with rows that are left out and rows past
// the live ones, which stay as they were.
#include "braid/kernels/cuda/pointwise/device/move_rows.h"

#include <algorithm>
#include <memory>

#include "backend/cuda/pointwise/tensor.h"
#include "braid/base/error.h"

namespace braid::cuda::test {
namespace {

enum class Index : uint8_t { none, from, to };

struct Case {
  int64_t n;
  int64_t live;
  int64_t others;  // rows of the side that an index names
  Index index;
};

constexpr Case kCases[] = {
    {1, 1, 1, Index::none}, {6, 4, 6, Index::none},     {301, 298, 301, Index::none},
    {1, 1, 3, Index::from}, {65, 65, 200, Index::from}, {301, 301, 40, Index::from},
    {1, 1, 3, Index::to},   {65, 65, 200, Index::to},   {301, 301, 512, Index::to},
};
constexpr int64_t kElems[] = {1, 2, 8, 18, 100, 576, 4096};

// Rows of the other side in random order, without repetition where it is written; some are left
// out.
std::vector<int32_t> indices(const Case& c, std::mt19937& rng) {
  std::vector<int32_t> out(static_cast<size_t>(c.n));
  std::vector<int32_t> all(static_cast<size_t>(c.others));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  std::ranges::shuffle(all, rng);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = rng() % 5 == 0 ? -1 : all[i % all.size()];
    if (c.index == Index::to && i >= all.size()) out[i] = -1;
  }
  return out;
}

TEST(MoveRows, AgainstALoop) {
  REQUIRE_DEVICE();
  for (const Case& c : kCases) {
    for (int64_t elems : kElems) {
      for (int num : {1, 2}) {
        const int64_t skip = elems % 8 == 0 && num == 2 ? 1 : 0;  // an address that is not aligned
        std::mt19937 rng(static_cast<uint32_t>(1000 * c.n + elems + num));
        const int64_t x_rows = c.index == Index::from ? c.others : c.n;
        const int64_t y_rows = c.index == Index::to ? c.others : c.n;
        std::vector<std::unique_ptr<Tensor>> x, y;
        for (int v = 0; v < num; ++v) {
          x.push_back(std::make_unique<Tensor>(DType::bf16, Shape{x_rows, elems}, 0, skip));
          y.push_back(std::make_unique<Tensor>(DType::bf16, Shape{y_rows, elems}));
          x.back()->normal(rng);
        }
        const std::vector<int32_t> index = indices(c, rng);
        Tensor named(DType::i32, {c.n});
        named.integers(index);
        const DeviceValue<int64_t> live(c.live);
        MoveRowsParams p{.num = num, .n = c.n, .row_bytes = 2 * elems};
        for (int v = 0; v < num; ++v) {
          p.x[v] = x[static_cast<size_t>(v)]->device();
          p.y[v] = y[static_cast<size_t>(v)]->device();
        }
        if (c.index == Index::from) p.from = named.device();
        if (c.index == Index::to) p.to = named.device();
        if (c.live < c.n) p.rows = live.get();
        for (const RowsConfig& config : map_candidates(move_rows_desc(p))) {
          SCOPED_TRACE(fmt::format("{} of {} rows of {} bytes, {} others, index {}, {} values, {}",
                                   c.live, c.n, p.row_bytes, c.others, static_cast<int>(c.index),
                                   num, to_string(config)));
          for (bool pdl : {false, true}) {
            for (const auto& value : y) value->poison();
            move_rows(p, config, {.stream = nullptr, .pdl = pdl});
            check_cuda(cudaDeviceSynchronize(), "move_rows");
            for (int v = 0; v < num; ++v) {
              Tensor& got = *y[static_cast<size_t>(v)];
              got.download();
              std::vector<std::byte> want(static_cast<size_t>(y_rows * p.row_bytes), kPoison);
              for (int64_t i = 0; i < c.live; ++i) {
                const int32_t at = index[static_cast<size_t>(i)];
                if (c.index != Index::none && at < 0) continue;
                const int64_t from = c.index == Index::from ? at : i;
                const int64_t to = c.index == Index::to ? at : i;
                std::memcpy(want.data() + to * p.row_bytes,
                            x[static_cast<size_t>(v)]->host().data + from * p.row_bytes,
                            static_cast<size_t>(p.row_bytes));
              }
              ASSERT_TRUE(got.bytes() == want) << "value " << v;
            }
          }
        }
      }
    }
  }
}

TEST(MoveRows, RefusesWhatDoesNotFit) {
  REQUIRE_DEVICE();
  Tensor x(DType::bf16, {4, 8}), y(DType::f16, {4, 8}), few(DType::bf16, {2, 8});
  EXPECT_THROW(move_rows_desc({.x = {x.device()}, .y = {y.device()}, .n = 4, .row_bytes = 16}),
               Error);
  EXPECT_THROW(move_rows_desc({.x = {x.device()}, .y = {few.device()}, .n = 4, .row_bytes = 16}),
               Error);
  EXPECT_THROW(move_rows_desc({.x = {x.device()}, .y = {x.device()}, .n = 4, .row_bytes = 3}),
               Error);
}

}  // namespace
}  // namespace braid::cuda::test
