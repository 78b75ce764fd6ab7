#include <cmath>

#include "backend/cuda/comm/comm_testing.h"

namespace braid::cuda::test {
namespace {

struct Case {
  DType dtype;
  DType w_dtype;
  int64_t rows;
  int64_t cols;
  int64_t live;
  ReduceNormConfig config;
  bool in_place;
};

template <class Fill>
std::vector<std::byte> make(DType dtype, int64_t n, Fill&& fill) {
  const int64_t size = size_of(dtype);
  std::vector<std::byte> out(n * size);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = encode(dtype, fill(i));
    std::memcpy(out.data() + i * size, &bits, size);
  }
  return out;
}
float at(DType dtype, const std::vector<std::byte>& data, int64_t i) {
  uint32_t bits = 0;
  std::memcpy(&bits, data.data() + i * size_of(dtype), size_of(dtype));
  return decode(dtype, bits);
}

// s exactly (sum in rank order, f32, then the residual), y against f64.
void check(fabric::DeviceEndpoint& e, DeviceComm& comm, HostBarrier& barrier,
           std::vector<std::unique_ptr<TestBuffer>>& b, const Case& c, uint64_t seed) {
  SCOPED_TRACE(fmt::format("rank {} of {}, seed {}: {} w {} [{}, {}] live {} as {}", e.rank(),
                           e.world_size(), seed, name(c.dtype), name(c.w_dtype), c.rows, c.cols,
                           c.live, to_string(c.config)));
  const int64_t n = c.rows * c.cols;
  const float eps = 1e-5f;
  const auto x_of = [&](int p) {
    return make(c.dtype, n, [&, p](int64_t i) { return value_of(seed, p, i); });
  };
  const auto r = make(DType::f32, n, [&](int64_t i) { return 3 * value_of(seed, 100, i); });
  const auto w = make(c.w_dtype, c.cols, [&](int64_t i) { return 1 + value_of(seed, 101, i); });
  TestBuffer &bx = *b[0], &br = *b[1], &bw = *b[2], &bs = *b[3], &by = *b[4], &bl = *b[5];
  std::vector<std::byte> first_s, first_y;
  TestStream stream;
  for (int run = 0; run < 2; ++run) {
    bx.start(n * size_of(c.dtype));
    br.start(n * 4);
    bw.start(c.cols * size_of(c.w_dtype));
    bs.start(n * 4);
    by.start(n * size_of(c.dtype));
    bl.start(8);
    bx.upload(x_of(e.rank()));
    br.upload(r);
    bw.upload(w);
    std::vector<std::byte> live(8);
    std::memcpy(live.data(), &c.live, 8);
    bl.upload(live);
    ReduceNormParams params{.dtype = c.dtype,
                            .x = bx.data(),
                            .r = static_cast<const float*>(br.data()),
                            .w = bw.data(),
                            .w_dtype = c.w_dtype,
                            .s = static_cast<float*>(c.in_place ? br.data() : bs.data()),
                            .y = by.data(),
                            .rows = c.rows,
                            .cols = c.cols,
                            .live_rows = static_cast<const int64_t*>(bl.data()),
                            .eps = eps};
    all_reduce_add_rms_norm(comm, params, c.config, {stream.get(), run == 1});
    stream.synchronize();
    comm.check();
    const auto s = (c.in_place ? br : bs).download();
    const auto y = by.download();
    EXPECT_TRUE(bx.guards_intact() && br.guards_intact() && bs.guards_intact() &&
                by.guards_intact());
    barrier.wait();
    if (run == 1) {
      EXPECT_TRUE(s == first_s && y == first_y) << "two runs differ";
      continue;
    }
    first_s = s;
    first_y = y;
    std::vector<std::vector<std::byte>> x;
    for (int p = 0; p < e.world_size(); ++p) x.push_back(x_of(p));
    for (int64_t row = 0; row < c.rows; ++row) {
      double squares = 0;
      for (int64_t j = 0; j < c.cols; ++j) {
        const int64_t i = row * c.cols + j;
        if (row >= c.live) {
          uint32_t bits = 0;
          std::memcpy(&bits, y.data() + i * size_of(c.dtype), size_of(c.dtype));
          ASSERT_EQ(bits, size_of(c.dtype) == 4 ? 0xffffffffu : 0xffffu) << "past the live rows";
          continue;
        }
        float sum = at(c.dtype, x[0], i);
        for (int p = 1; p < e.world_size(); ++p) sum += at(c.dtype, x[p], i);
        ASSERT_EQ(at(DType::f32, s, i), sum + at(DType::f32, r, i)) << "s at " << row << ", " << j;
        squares += double(at(DType::f32, s, i)) * at(DType::f32, s, i);
      }
      if (row >= c.live) continue;
      const double scale = 1 / std::sqrt(squares / c.cols + eps);
      // One rounding of y, and f32 sums of C squares in any order.
      const double tolerance = (c.dtype == DType::bf16 ? 0x1p-8 : 0) + 1e-5;
      for (int64_t j = 0; j < c.cols; ++j) {
        const int64_t i = row * c.cols + j;
        const double exact = at(DType::f32, s, i) * scale * at(c.w_dtype, w, j);
        ASSERT_NEAR(at(c.dtype, y, i), exact, std::abs(exact) * tolerance + 1e-30)
            << "y at " << row << ", " << j;
      }
    }
  }
}

TEST(ReduceNorm, EveryConfigOverSizes) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  for (const WorldKind& kind : worlds()) {
    World world(kind);
    world.run([&](fabric::DeviceEndpoint& e) {
      DeviceComm comm(e, fabric::Group::world(e.world_size()), {.name = "norm"});
      std::vector<std::unique_ptr<TestBuffer>> b;
      constexpr int64_t kBytes = 33 * 8192 * 4;
      for (const char* name : {"x", "r", "w", "s", "y", "live"}) {
        b.push_back(std::make_unique<TestBuffer>(e, kBytes, name, false));
      }
      HostBarrier barrier(e);
      barrier.wait();
      uint64_t seed = 7;
      for (DType dtype : {DType::bf16, DType::f32}) {
        for (auto [rows, cols, live] : {std::tuple<int64_t, int64_t, int64_t>{1, 8, 1},
                                        {1, 4096, 1},
                                        {3, 576, 2},
                                        {2, 8192, 2},
                                        {5, 2056, 0},
                                        {32, 4096, 29}}) {
          std::vector<ReduceNormConfig> configs = {choose_reduce_norm(rows, cols, comm.limits())};
          for (int units : {1, 2, 4}) {
            const int threads = static_cast<int>(round_up(ceil_div(cols / 8, units), 32));
            if (threads > kMaxCommThreads) continue;
            for (int spread : {1, 3, 4}) {
              for (int row_groups : {1, 3}) {
                configs.push_back({spread, threads, units, row_groups});
              }
            }
          }
          for (const ReduceNormConfig& config : configs) {
            ++seed;
            const DType w_dtype = seed % 2 ? DType::bf16 : DType::f32;
            check(e, comm, barrier, b, {dtype, w_dtype, rows, cols, live, config, seed % 3 == 0},
                  seed);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
      barrier.wait();
    });
  }
}

// Each rank has the residual of its rows; y is whole on every rank.
TEST(ReduceNorm, ResidualDividedOverTokens) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  for (const WorldKind& kind : worlds()) {
    World world(kind);
    world.run([&](fabric::DeviceEndpoint& e) {
      const int P = e.world_size();
      DeviceComm comm(e, fabric::Group::world(P), {.name = "norm"});
      constexpr int64_t kBytes = 40 * 8192 * 4;
      TestBuffer x(e, kBytes, "x"), y(e, kBytes, "y"), r(e, kBytes, "r", false),
          w(e, 8192 * 4, "w", false), live_rows(e, 8, "live", false);
      HostBarrier barrier(e);
      TestStream stream;
      barrier.wait();
      uint64_t seed = 70;
      for (DType dtype : {DType::bf16, DType::f32}) {
        for (auto [rows, cols, live] : {std::tuple<int64_t, int64_t, int64_t>{1, 8, 1},
                                        {7, 4096, 5},
                                        {2, 8192, 2},
                                        {5, 2056, 0},
                                        {39, 4096, 33}}) {
          ++seed;
          SCOPED_TRACE(fmt::format("rank {} of {}, seed {}: {} [{}, {}] live {}", e.rank(), P, seed,
                                   name(dtype), rows, cols, live));
          const int64_t n = rows * cols;
          const Range part = even_part(live, P, e.rank());
          const auto x_of = [&](int p) {
            return make(dtype, n, [&, p](int64_t i) { return value_of(seed, p, i); });
          };
          // Of the whole value; each rank takes its rows.
          const auto residual =
              make(DType::f32, n, [&](int64_t i) { return 3 * value_of(seed, 100, i); });
          const auto weight =
              make(DType::bf16, cols, [&](int64_t i) { return 1 + value_of(seed, 101, i); });
          std::vector<std::byte> live_bytes(8);
          std::memcpy(live_bytes.data(), &live, 8);
          const int64_t mine = part.size() * cols * 4;
          x.start(n * size_of(dtype));
          y.start(n * size_of(dtype));
          r.start(mine);
          w.start(cols * 2);
          live_rows.start(8);
          x.upload(x_of(e.rank()));
          r.upload({residual.begin() + part.begin * cols * 4,
                    residual.begin() + part.begin * cols * 4 + mine});
          w.upload(weight);
          live_rows.upload(live_bytes);
          const ReduceNormParams params{.dtype = dtype,
                                        .x = x.data(),
                                        .r = static_cast<const float*>(r.data()),
                                        .w = w.data(),
                                        .s = static_cast<float*>(r.data()),
                                        .y = y.data(),
                                        .rows = rows,
                                        .cols = cols,
                                        .live_rows = static_cast<const int64_t*>(live_rows.data())};
          reduce_scatter_add_rms_norm_all_gather(comm, params,
                                                 choose_scatter_norm(rows, cols, P, comm.limits()),
                                                 {stream.get(), seed % 2 == 0});
          stream.synchronize();
          comm.check();
          const auto s = r.download();
          const auto out = y.download();
          EXPECT_TRUE(x.guards_intact() && y.guards_intact() && r.guards_intact());
          barrier.wait();
          std::vector<std::vector<std::byte>> all;
          for (int p = 0; p < P; ++p) all.push_back(x_of(p));
          for (int64_t row = 0; row < rows; ++row) {
            double squares = 0;
            std::vector<float> expected(cols);
            for (int64_t j = 0; j < cols; ++j) {
              const int64_t i = row * cols + j;
              float sum = at(dtype, all[0], i);
              for (int p = 1; p < P; ++p) sum += at(dtype, all[p], i);
              expected[j] = sum + at(DType::f32, residual, i);
              squares += double(expected[j]) * expected[j];
              if (part.begin <= row && row < part.end) {
                ASSERT_EQ(at(DType::f32, s, (row - part.begin) * cols + j), expected[j]);
              }
            }
            const double scale = 1 / std::sqrt(squares / cols + 1e-5f);
            for (int64_t j = 0; j < cols; ++j) {
              const float seen = at(dtype, out, row * cols + j);
              if (row >= live) {
                ASSERT_TRUE(std::isnan(seen)) << "past the live rows";
                continue;
              }
              const double exact = expected[j] * scale * at(DType::bf16, weight, j);
              ASSERT_NEAR(seen, exact,
                          std::abs(exact) * ((dtype == DType::bf16 ? 0x1p-8 : 0) + 1e-5) + 1e-30);
            }
          }
        }
      }
      barrier.wait();
    });
  }
}

TEST(ReduceNorm, RefusesWhatItCannot) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  World world(fabric_config({1, false}));
  world.run([&](fabric::DeviceEndpoint& e) {
    DeviceComm comm(e, fabric::Group::world(1));
    ReduceNormParams params{.rows = 1, .cols = 4100};
    EXPECT_EQ(error_of([&] {
                all_reduce_add_rms_norm(comm, params, {.threads = 512, .units = 4}, {});
              }).code(),
              ErrorCode::kUnsupported);
    params.cols = 8192;
    EXPECT_THAT(
        error_of([&] { all_reduce_add_rms_norm(comm, params, {.threads = 32}, {}); }).what(),
        testing::HasSubstr("[1, 8192]"));
  });
}

}  // namespace
}  // namespace braid::cuda::test
