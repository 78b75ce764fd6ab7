#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cuda/comm/comm_testing.h"

namespace braid::cuda::test {
namespace {

constexpr int64_t kMaxBytes = 9 << 20;
constexpr uint64_t kSeed = 20;

struct Case {
  CollectiveOp op;
  DType dtype;
  int64_t rows;
  int64_t cols;
  CollectiveConfig config;
  int64_t live = -1;  // read on the device
  int64_t shift = 0;  // elements by which x and y are off their alignment
  bool in_place = false;
  bool pdl = false;
  bool nans = false;  // here and there all bits of an element are set
};

std::string describe(const Case& c) {
  return fmt::format("{} {} [{}, {}] live {} shift {}{}{}{} as {}", to_string(c.op), name(c.dtype),
                     c.rows, c.cols, c.live, c.shift, c.in_place ? " in place" : "",
                     c.pdl ? " pdl" : "", c.nans ? " NaNs" : "", to_string(c.config));
}

// Bits of element i of a rank's x.
uint32_t input_of(const Case& c, uint64_t call, int rank, int64_t i) {
  if (c.nans && mix(call + rank + i / 2) % 3 == 0) return size_of(c.dtype) == 4 ? ~0u : 0xffff;
  return encode(c.dtype, value_of(call, rank, i));
}

// A rank's side of the sweeps: memory made once, cases one after the other.
class Ranks {
 public:
  explicit Ranks(fabric::DeviceEndpoint& endpoint)
      : endpoint_(endpoint),
        comm_(endpoint, fabric::Group::world(endpoint.world_size()), {.name = "test"}),
        barrier_(endpoint),
        x_(endpoint, kMaxBytes, "x"),
        y_(endpoint, kMaxBytes, "y"),
        live_(endpoint, 8, "live") {
    barrier_.wait();
  }
  ~Ranks() {
    try {
      barrier_.wait();  // memory goes when nobody spins
    } catch (...) {
    }
  }

  // Twice, and against the sum in the order of the ranks, bit by bit: so all ranks have the same.
  void check(const Case& c) {
    SCOPED_TRACE(fmt::format("rank {} of {}, seed {}: {}", me(), ranks(), kSeed, describe(c)));
    const int64_t size = size_of(c.dtype);
    const int64_t n = c.rows * c.cols;
    const int64_t live_rows = c.live < 0 ? c.rows : c.live;
    const auto rows_of = [&](int64_t rows, int p) { return even_part(rows, ranks(), p); };
    const int64_t x_elems =
        c.op == CollectiveOp::all_gather ? ceil_div(c.rows, ranks()) * c.cols : n;
    const int64_t y_elems =
        c.op == CollectiveOp::reduce_scatter ? ceil_div(c.rows, ranks()) * c.cols : n;
    const uint64_t call = ++call_ + kSeed;
    std::vector<std::byte> first;
    for (int run = 0; run < 2; ++run) {
      std::vector<std::byte> x(x_elems * size);
      for (int64_t i = 0; i < x_elems; ++i) {
        const uint32_t bits = input_of(c, call, me(), i);
        std::memcpy(x.data() + i * size, &bits, size);
      }
      y_.start(y_elems * size, c.shift * size);
      x_.start(x_elems * size, c.shift * size);
      if (c.in_place) {
        y_.upload(x);
      } else {
        x_.upload(x);
      }
      live_.start(8);
      std::vector<std::byte> live(8);
      std::memcpy(live.data(), &live_rows, 8);
      live_.upload(live);
      CollectiveParams params{
          .x = c.in_place ? y_.data() : x_.data(),
          .y = y_.data(),
          .live_rows = c.live < 0 ? nullptr : static_cast<const int64_t*>(live_.data())};
      const CollectiveDesc desc = cuda::describe(comm_, c.op, c.dtype, c.rows, c.cols, params);
      if (c.config.algorithm == CommAlgorithm::staged) {
        prepare(comm_, desc, c.config);
        barrier_.wait();
      }
      collective(comm_, desc, params, c.config, {stream_.get(), c.pdl});
      stream_.synchronize();
      comm_.check();
      const std::vector<std::byte> y = y_.download();
      if (run == 0) {
        first = y;
        verify(c, y, call, live_rows, rows_of(live_rows, me()));
      } else {
        EXPECT_TRUE(y == first) << "two runs differ";
      }
      EXPECT_TRUE(y_.guards_intact() && x_.guards_intact());
      barrier_.wait();
    }
  }

  int ranks() const { return endpoint_.world_size(); }
  int me() const { return endpoint_.rank(); }

 private:
  void verify(const Case& c, const std::vector<std::byte>& y, uint64_t call, int64_t live_rows,
              Range mine) {
    const int64_t size = size_of(c.dtype);
    const int64_t written =
        (c.op == CollectiveOp::reduce_scatter ? mine.size() : live_rows) * c.cols;
    const int64_t block = c.rows / ranks() * c.cols;  // of all_to_all
    double worst = 0;
    for (int64_t i = 0; i < std::ssize(y) / size; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, y.data() + i * size, size);
      if (i >= written) {
        if (c.in_place) continue;
        ASSERT_EQ(bits, size == 4 ? 0xffffffffu : 0xffffu) << "past the live rows, at " << i;
        continue;
      }
      const auto input = [&](int p, int64_t at) { return input_of(c, call, p, at); };
      uint32_t expected = 0;
      if (c.op == CollectiveOp::all_reduce || c.op == CollectiveOp::reduce_scatter) {
        const int64_t at = c.op == CollectiveOp::all_reduce ? i : mine.begin * c.cols + i;
        float sum = decode(c.dtype, input(0, at));
        double exact = sum;
        for (int p = 1; p < ranks(); ++p) {
          sum += decode(c.dtype, input(p, at));
          exact += decode(c.dtype, input(p, at));
        }
        if (std::isnan(sum)) {
          ASSERT_TRUE(std::isnan(decode(c.dtype, bits))) << "at " << i;
          continue;
        }
        expected = encode(c.dtype, sum);
        worst = std::max(worst, std::abs(decode(c.dtype, bits) - exact));
      } else if (c.op == CollectiveOp::all_gather) {
        int p = 0;
        while (even_part(live_rows, ranks(), p).end * c.cols <= i) ++p;
        expected = input(p, i - even_part(live_rows, ranks(), p).begin * c.cols);
      } else {
        expected = input(static_cast<int>(i / block), me() * block + i % block);
      }
      ASSERT_EQ(bits, expected) << "at " << i << ": " << decode(c.dtype, bits) << ", expected "
                                << decode(c.dtype, expected);
    }
    // One rounding to the dtype of a value below P, and P - 1 to f32.
    const double eps = c.dtype == DType::bf16 ? 0x1p-8 : c.dtype == DType::f16 ? 0x1p-11 : 0x1p-23;
    EXPECT_LE(worst, ranks() * eps);
  }

  fabric::DeviceEndpoint& endpoint_;
  DeviceComm comm_;
  HostBarrier barrier_;
  TestBuffer x_;
  TestBuffer y_;
  TestBuffer live_;
  TestStream stream_;
  uint64_t call_ = 0;
};

template <class Fn>
void on_ranks(Fn&& fn) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  for (const WorldKind& kind : worlds()) {
    World world(kind);
    world.run([&](fabric::DeviceEndpoint& endpoint) {
      Ranks ranks(endpoint);
      fn(ranks);
    });
  }
}

template <class Fn>
void on_machines(Fn&& fn) {
  if (machines().empty()) GTEST_SKIP() << "no CUDA device";
  for (const fabric::PeerFabricConfig& config : machines()) {
    World world(config);
    SCOPED_TRACE(world.describe());
    world.run([&](fabric::DeviceEndpoint& endpoint) {
      Ranks ranks(endpoint);
      fn(ranks);
    });
  }
}

const std::vector<CollectiveConfig> kSums = {line(8, 2, 64), line(12, 3, 96), direct(3, 128, 4),
                                             direct(5, 64, 8)};
constexpr CollectiveOp kSumOps[] = {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter};
constexpr CollectiveOp kMoveOps[] = {CollectiveOp::all_gather, CollectiveOp::all_to_all};

TEST(Collective, SumsOfEveryTypeAndOddSizes) {
  on_ranks([](Ranks& ranks) {
    for (CollectiveOp op : kSumOps) {
      for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        for (const CollectiveConfig& config : kSums) {
          for (auto [rows, cols] : {std::pair<int64_t, int64_t>{1, 1},
                                    {3, 1},
                                    {1, 7},
                                    {8, 8},
                                    {5, 577},
                                    {17, 1000},
                                    {2, 4096}}) {
            ranks.check({op, dtype, rows, cols, config});
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

TEST(Collective, SumsOfMegabytes) {
  on_ranks([](Ranks& ranks) {
    for (CollectiveOp op : kSumOps) {
      ranks.check({op, DType::bf16, 64, 8192, line(8, 16, 512)});
      ranks.check({op, DType::bf16, 63, 8191, line(12, 32, 256)});
      ranks.check({op, DType::bf16, 257, 8192, direct(16, 512, 4)});
      ranks.check({op, DType::f32, 255, 4097, direct(32, 512, 8)});
    }
  });
}

TEST(Collective, SumsOddlyPlacedAndInPlace) {
  on_ranks([](Ranks& ranks) {
    for (const CollectiveConfig& config : kSums) {
      for (CollectiveOp op : kSumOps) {
        ranks.check({op, DType::bf16, 9, 333, config, -1, 1});
        ranks.check({op, DType::f32, 9, 333, config, -1, 3});
      }
      for (int64_t cols : {1, 100, 4096}) {
        ranks.check({CollectiveOp::all_reduce, DType::bf16, 5, cols, config, -1, 0, true});
      }
    }
  });
}

// Bare lines are emptied by who reads them: messages of all lengths, between them some of other
// kernels, find them so.
TEST(Collective, SumsByBareLines) {
  on_ranks([](Ranks& ranks) {
    std::mt19937 random(kSeed);
    for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      for (int i = 0; i < 40; ++i) {
        const auto rows = 1 + static_cast<int64_t>(random() % 32);
        const auto cols = 8 * (1 + static_cast<int64_t>(random() % 64));
        Case c{CollectiveOp::all_reduce, dtype, rows, cols, line(16, 16, 128 << random() % 3)};
        c.pdl = random() % 2 == 0;
        c.nans = random() % 2 == 0;
        c.in_place = random() % 4 == 0;
        if (random() % 2 == 0) c.live = static_cast<int64_t>(random() % (rows + 1));
        ranks.check(c);
        if (random() % 3 == 0) ranks.check({kSumOps[random() % 2], dtype, 3, 24, kSums[i % 4]});
        if (random() % 3 == 0) ranks.check({kMoveOps[0], dtype, 5, 40, line(8, 2, 64)});
        if (testing::Test::HasFailure()) return;
      }
      ranks.check({CollectiveOp::all_reduce, dtype, 9, 48, line(16, 4, 128), -1, 1});  // unaligned
    }
  });
}

TEST(Collective, MovesOfEverySize) {
  on_ranks([](Ranks& ranks) {
    for (CollectiveOp op : kMoveOps) {
      for (const CollectiveConfig& config :
           {line(8, 2, 64), line(12, 3, 96), direct(3, 128, 4), direct(5, 64, 8),
            CollectiveConfig{.algorithm = CommAlgorithm::copy_engine}}) {
        const int64_t P = ranks.ranks();
        for (auto [rows, cols] :
             {std::pair<int64_t, int64_t>{P, 1}, {P, 13}, {3 * P, 129}, {8 * P, 4096}}) {
          ranks.check({op, DType::bf16, rows, cols, config});
          if (op == CollectiveOp::all_gather) {
            ranks.check({op, DType::f32, rows + 1, cols, config});
          }
          if (testing::Test::HasFailure()) return;
        }
      }
      ranks.check({op, DType::bf16, 48 * ranks.ranks(), 8192, direct(16, 512, 4)});
    }
  });
}

TEST(Collective, LiveRowsAreReadOnTheDevice) {
  on_ranks([](Ranks& ranks) {
    for (CollectiveOp op :
         {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter, CollectiveOp::all_gather}) {
      for (const CollectiveConfig& config : {line(8, 2, 64), line(12, 2, 64), direct(3, 64, 4)}) {
        for (int64_t live : {0, 1, 2, 6, 13}) {
          ranks.check({op, DType::bf16, 13, 264, config, live});
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(Collective, BetweenMachines) {
  on_machines([](Ranks& ranks) {
    constexpr CollectiveConfig kStaged{.algorithm = CommAlgorithm::staged};
    const int64_t P = ranks.ranks();
    for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      for (auto [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {5, 577}, {17, 1000}}) {
        for (CollectiveOp op : kSumOps) ranks.check({op, dtype, rows, cols, kStaged});
        ranks.check({CollectiveOp::all_gather, dtype, rows, cols, kStaged});
        ranks.check({CollectiveOp::all_to_all, dtype, rows * P, cols, kStaged});
        if (testing::Test::HasFailure()) return;
      }
    }
    for (CollectiveOp op :
         {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter, CollectiveOp::all_gather}) {
      for (int64_t live : {0, 1, 6, 13}) ranks.check({op, DType::bf16, 13, 264, kStaged, live});
      ranks.check({op, DType::bf16, 257, 8192, kStaged, -1, 1});
    }
    ranks.check({CollectiveOp::all_reduce, DType::bf16, 9, 4096, kStaged, -1, 0, true});
  });
}

TEST(Collective, EveryCandidateAndTheChoice) {
  on_ranks([](Ranks& ranks) {
    for (int64_t rows : {1, 48}) {
      CollectiveDesc desc{.dtype = DType::bf16, .ranks = ranks.ranks(), .rows = rows, .cols = 4096};
      for (const CollectiveConfig& config : candidates(desc, {})) {
        ranks.check({desc.op, desc.dtype, rows, desc.cols, config, -1, 0, false, true});
      }
      ranks.check({desc.op, desc.dtype, rows, desc.cols, choose(desc, {})});
    }
  });
}

}  // namespace
}  // namespace braid::cuda::test
