#include "braid/ops/embedding.h"

#include "backend/cuda/pointwise/tensor.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/pointwise/device/embedding.h"
#include "braid/kernels/cuda/pointwise/device/gather_rows.h"

namespace braid::cuda::test {
namespace {

template <class Launch>
void check_candidates(const RowsDesc& desc, Tensor& y, const TensorView& want, int64_t live,
                      const std::string& what, Launch launch) {
  for (const RowsConfig& config : map_candidates(desc)) {
    SCOPED_TRACE(fmt::format("{}, {} live, {}", what, live, to_string(config)));
    for (bool pdl : {false, true}) {
      y.poison();
      launch(config, LaunchContext{.stream = nullptr, .pdl = pdl});
      check_cuda(cudaDeviceSynchronize(), "rows");
      y.download();
      // The same products and roundings as the reference's: equal bit for bit.
      ASSERT_EQ(y.compare(want, live, [](int64_t, int64_t) { return 0.; }), "");
    }
  }
}

TEST(Embedding, EveryTable) {
  REQUIRE_DEVICE();
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto table_dtype = static_cast<DType>(d);
    if (table_dtype == DType::i32) continue;
    const int64_t block = info(table_dtype).block_elems;
    for (int64_t cols : {block, 3 * block, 577 / block * block, 4096l}) {
      if (cols == 0) continue;
      for (auto [rows, live] : {std::pair<int64_t, int64_t>{1, 1}, {9, 7}, {70, 69}}) {
        for (DType out : {DType::f32, DType::bf16}) {
          const auto seed = static_cast<uint32_t>(d * 100000 + cols * 10 + rows);
          std::mt19937 rng(seed);
          const int64_t V = 37;
          Tensor table(table_dtype, {V, cols}, block), ids(DType::i32, {rows});
          Tensor y(out, {rows, cols}, 8), want(out, {rows, cols});
          table.normal(rng);
          std::vector<int32_t> id(static_cast<size_t>(rows));
          for (int32_t& i : id) i = static_cast<int32_t>(rng() % V);
          id[0] = V - 1;
          ids.integers(id);
          const float scale = 1.37f;
          reference(ops::kEmbedding, Attrs::of(ops::EmbeddingAttrs{scale, out}),
                    {ids.host(), table.host()}, {want.host()}, live);
          const DeviceValue<int64_t> rows_live(live);
          const EmbeddingParams params = {.ids = ids.device(),
                                          .table = table.device(),
                                          .y = y.device(),
                                          .scale = scale,
                                          .rows = rows_live.get()};
          check_candidates(
              embedding_desc(params), y, want.host(), live,
              fmt::format("{} {} -> {}, seed {}", name(table_dtype), cols, name(out), seed),
              [&](const RowsConfig& config, LaunchContext context) {
                embedding(params, config, context);
              });
        }
      }
    }
  }
}

TEST(Embedding, UnknownIdsGiveNaN) {
  REQUIRE_DEVICE();
  std::mt19937 rng(1);
  for (DType dtype : {DType::bf16, DType::q4_k}) {
    Tensor table(dtype, {3, 256}), ids(DType::i32, {4}), y(DType::f32, {4, 256});
    table.normal(rng);
    ids.integers({-1, 3, 2, 2147483647});
    const EmbeddingParams params = {.ids = ids.device(), .table = table.device(), .y = y.device()};
    embedding(params, choose_map(embedding_desc(params), 132), {});
    check_cuda(cudaDeviceSynchronize(), "embedding");
    y.download();
    for (int64_t r : {0, 1, 3}) {
      for (float x : y.row(r)) ASSERT_TRUE(std::isnan(x)) << "row " << r;
    }
    EXPECT_EQ(y.row(2), table.row(2));
  }
}

TEST(GatherRows, CopiesOfTheWholeBatchsRows) {
  REQUIRE_DEVICE();
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (int64_t cols : {1, 2, 3, 576, 577, 4096}) {
      for (auto [rows, live] : {std::pair<int64_t, int64_t>{1, 1}, {8, 5}, {90, 88}}) {
        const auto seed = static_cast<uint32_t>(cols * 10 + rows);
        std::mt19937 rng(seed);
        const int64_t T = 50, first_token = 11;
        Tensor x(dtype, {T, cols}, 8), index(DType::i32, {rows});
        Tensor y(dtype, {rows, cols}, 16), want(dtype, {rows, cols});
        x.normal(rng);
        std::vector<int32_t> at(static_cast<size_t>(rows));
        for (int32_t& i : at) i = static_cast<int32_t>(first_token + rng() % T);
        index.integers(at);
        for (int64_t r = 0; r < live; ++r) {
          std::memcpy(want.host().row(r), x.host().row(at[static_cast<size_t>(r)] - first_token),
                      static_cast<size_t>(bytes_of(dtype, cols)));
        }
        BatchPart part;
        part.begin.token = first_token;
        part.begin.row = 3;
        part.count.token = T;
        part.count.row = live;
        const DeviceValue<BatchPart> device_part(part);
        const GatherRowsParams params = {
            .x = x.device(), .rows = index.device(), .y = y.device(), .part = device_part.get()};
        check_candidates(gather_rows_desc(params), y, want.host(), live,
                         fmt::format("{} {}, seed {}", name(dtype), cols, seed),
                         [&](const RowsConfig& config, LaunchContext context) {
                           gather_rows(params, config, context);
                         });
      }
    }
  }
}

TEST(GatherRows, RowsOutsideGiveNaN) {
  REQUIRE_DEVICE();
  std::mt19937 rng(1);
  Tensor x(DType::bf16, {4, 64}), index(DType::i32, {4}), y(DType::bf16, {4, 64});
  x.normal(rng);
  index.integers({9, 10, 14, -2147483647});
  BatchPart part;
  part.begin.token = 10;
  part.count.row = 4;
  const DeviceValue<BatchPart> device_part(part);
  const GatherRowsParams params = {
      .x = x.device(), .rows = index.device(), .y = y.device(), .part = device_part.get()};
  gather_rows(params, choose_map(gather_rows_desc(params), 132), {});
  check_cuda(cudaDeviceSynchronize(), "gather_rows");
  y.download();
  for (int64_t r : {0, 2, 3}) {
    for (float v : y.row(r)) ASSERT_TRUE(std::isnan(v)) << "row " << r;
  }
  EXPECT_EQ(y.row(1), x.row(0));
}

// Rows that a rank does not have are zeros, so that the sum over ranks is all of them.
TEST(GatherRows, NoneIsZerosWhereWanted) {
  REQUIRE_DEVICE();
  for (int64_t cols : {1, 64, 577}) {
    std::mt19937 rng(static_cast<uint32_t>(cols));
    Tensor x(DType::f32, {4, cols}), index(DType::i32, {5}), y(DType::f32, {5, cols});
    x.normal(rng);
    index.integers({3, -1, 0, 4, 2});
    BatchPart part;
    part.count.row = 4;
    const DeviceValue<BatchPart> device_part(part);
    const GatherRowsParams params = {.x = x.device(),
                                     .rows = index.device(),
                                     .y = y.device(),
                                     .part = device_part.get(),
                                     .zeros_for_none = true};
    gather_rows(params, choose_map(gather_rows_desc(params), 132), {});
    check_cuda(cudaDeviceSynchronize(), "gather_rows");
    y.download();
    EXPECT_EQ(y.row(0), x.row(3));
    EXPECT_EQ(y.row(1), std::vector<float>(static_cast<size_t>(cols)));
    EXPECT_EQ(y.row(2), x.row(0));
    for (float v : y.row(3)) EXPECT_TRUE(std::isnan(v)) << "a row outside";
    for (float v : y.row(4)) EXPECT_TRUE(std::isnan(v)) << "a row past the live ones is untouched";
  }
}

}  // namespace
}  // namespace braid::cuda::test
