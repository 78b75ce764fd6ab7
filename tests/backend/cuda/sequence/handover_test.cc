// Handovers alone, over ranks that may share GPUs: each rank pushes rows, waits for what peers
// push, and merges states or keeps rows, against the host's results. Odd sizes, empty shares,
// poisoned memory, few and many CTAs, steps that follow each other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "backend/cuda/pointwise/tensor.h"
#include "backend/cuda/sequence/sequence_world.h"
#include "braid/backend/cuda/device.h"
#include "braid/fabric/host_barrier.h"
#include "braid/kernels/cuda/comm/device/handover.h"
#include "braid/kernels/cuda/comm/device/one_sided_kernels.h"

namespace braid::testing_sp_gpu {
namespace {

using cuda::check_cuda;
using cuda::OneSidedComm;
using Floats = std::vector<float>;

struct Config {
  int ctas = 0, pushers = 0;  // 0: as chosen
};

// Rows from a rank's own memory to a place in a peer's inbox: floats, in words of 16 bytes.
struct Push {
  int64_t from = 0, to = 0;
  int64_t row = 0;  // floats of a row
  int64_t rows = 0;
  int64_t gap = 0;  // between rows at the source
};

// A rank with an inbox of `capacity` floats and with counters.
class Rank {
 public:
  Rank(fabric::PeerEndpoint& e, const Mesh& mesh, int64_t capacity)
      : e_(e),
        comm_(e, {&mesh, 1}),
        meeting_(e),
        inbox_(e.allocate<float>(capacity, "inbox")),
        counters_(e.allocate<uint32_t>(int64_t{e.world_size()} * cuda::kCounterWords, "counters")),
        stream_(cuda::make_stream()) {
    check_cuda(cudaMemset(counters_.data(), 0, counters_.size() * sizeof(uint32_t)), "counters");
    check_cuda(cudaMemset(inbox_.data(), 0xff, inbox_.size() * sizeof(float)), "poison");
    check_cuda(cudaDeviceSynchronize(), "poison");
  }

  float* inbox() const { return inbox_.data(); }
  void meet() { meeting_.wait(); }

  // Step `step` (1, 2, ..): `pushes` [P] lists of blocks to each peer, `awaited` ranks push here.
  template <class Last>
  void run(const float* source, const std::vector<std::vector<Push>>& pushes,
           const std::vector<bool>& awaited, int step, Config config, int64_t rows,
           const Last& last) {
    OneSidedComm::Handover h;
    h.stores.ended = ended_.get();
    int64_t most = 0;
    for (int peer = 0; peer < e_.world_size(); ++peer) {
      if (pushes[peer].empty()) continue;
      for (const Push& p : pushes[peer]) {
        auto* to = e_.reach(inbox_.data() + p.to, peer);
        const int64_t bytes = p.row * 4;
        h.stores.pieces.push_back({.dst = to,
                                   .src = reinterpret_cast<const std::byte*>(source + p.from),
                                   .block = {.row_bytes = bytes,
                                             .rows = p.rows,
                                             .dst_stride = bytes,
                                             .src_stride = bytes + p.gap * 4}});
        h.peer_of_piece.push_back(static_cast<int>(h.stores.peers.size()));
        most = std::max(most, bytes * p.rows);
      }
      h.stores.peers.push_back(peer);
    }
    const auto pieces = static_cast<int>(h.stores.pieces.size());
    const cuda::HandoverConfig chosen = cuda::choose_handover(pieces, most, rows, kSms);
    h.stores.ctas = config.ctas > 0 ? config.ctas : chosen.ctas;
    h.pushers = pieces == 0 ? 0 : config.ctas > 0 ? config.pushers : chosen.pushers;
    h.arrivals = counters_.data();
    for (bool comes : awaited) h.expected.push_back(comes ? step : 0);
    meet();
    comm_.hand_over(h, last, {stream_.get(), false});
    check_cuda(cudaStreamSynchronize(stream_.get()), "handover");
    e_.check();
    meet();
  }

  // What has been counted: as often as ranks pushed, and by nobody else.
  std::vector<uint32_t> counted() const {
    std::vector<uint32_t> words(static_cast<size_t>(counters_.size())), out;
    check_cuda(cudaMemcpy(words.data(), counters_.data(), words.size() * 4, cudaMemcpyDefault),
               "counters");
    for (size_t i = 0; i < words.size(); i += cuda::kCounterWords) out.push_back(words[i]);
    return out;
  }

 private:
  static constexpr int kSms = 16;  // at most as many CTAs, beside other ranks on a GPU

  fabric::PeerEndpoint& e_;
  const OneSidedComm comm_;
  fabric::HostBarrier meeting_;
  const fabric::SymBuf<float> inbox_;
  const fabric::SymBuf<uint32_t> counters_;
  const cuda::test::DeviceValue<uint32_t> ended_{std::vector<uint32_t>(cuda::kMaxCommRanks).data(),
                                                 cuda::kMaxCommRanks};
  const cuda::OwnedStream stream_;
};

Floats download(const float* data, size_t n) {
  Floats host(n);
  check_cuda(cudaMemcpy(host.data(), data, n * sizeof(float), cudaMemcpyDefault), "download");
  return host;
}

struct MergeCase {
  std::vector<int64_t> queries;  // of each rank, merged from all ranks' states; perhaps none
  int64_t own = 0;               // further queries of each rank, with a state of its own alone
  int64_t heads = 3, D = 38;     // D + 2 in words of 16 bytes
  bool bf16 = false;
  Config config;
};

// The state of a query on a rank: each 5th has no keys.
Floats state_of(const MergeCase& c, int step, int holder, int owner, int64_t query, int64_t head) {
  std::seed_seq seed{step, holder, owner, static_cast<int>(query), static_cast<int>(head)};
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Floats state;
  const bool none = rng() % 5 == 0;
  for (int64_t d = 0; d < c.D; ++d) state.push_back(none ? 0 : normal(rng));
  state.push_back(none ? 0 : 1 + std::abs(normal(rng)));
  state.push_back(none ? -INFINITY : 3 * normal(rng));
  return state;
}

// In f64, by all holders' states or the owner's alone.
std::vector<double> merged(const MergeCase& c, int step, int owner, int64_t query, int64_t head,
                           bool alone) {
  std::vector<double> o(static_cast<size_t>(c.D));
  double top = -INFINITY, sum = 0;
  std::vector<Floats> states;
  for (int holder = 0; holder < std::ssize(c.queries); ++holder) {
    if (!alone || holder == owner) states.push_back(state_of(c, step, holder, owner, query, head));
  }
  for (const Floats& s : states) top = std::max(top, double{s[c.D + 1]});
  for (const Floats& s : states) {
    if (s[c.D + 1] == -INFINITY) continue;
    const double weight = std::exp(s[c.D + 1] - top);
    sum += weight * s[c.D];
    for (int64_t d = 0; d < c.D; ++d) o[d] += weight * s[d];
  }
  for (double& x : o) x = sum > 0 ? x / sum : 0;
  return o;
}

void expect_merged(const MergeCase& c) {
  const int P = static_cast<int>(c.queries.size());
  const Topology topology{.devices = P};
  if (!has_gpus(topology)) GTEST_SKIP() << gpus() << " GPUs";
  SCOPED_TRACE(fmt::format("{} queries and {} own, {} heads of {}, {} of {} CTAs",
                           fmt::join(c.queries, ","), c.own, c.heads, c.D, c.config.pushers,
                           c.config.ctas));
  const int64_t row = c.heads * (c.D + 2), n = *std::ranges::max_element(c.queries);
  fabric::PeerFabric fabric(fabric_config(topology));
  const Mesh mesh({{"world", P}});
  fabric::run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
    const int me = e.rank();
    Rank rank(e, mesh, P * n * row);
    const int64_t mine = c.queries[me], results = n + c.own;
    for (int step = 1; step <= 3; ++step) {
      // The queries of rank p from row p * n on, then the own ones.
      Floats source((P * n + c.own) * row, NAN);
      const auto put = [&](int64_t at, int owner, int64_t query) {
        for (int64_t h = 0; h < c.heads; ++h) {
          std::ranges::copy(state_of(c, step, me, owner, query, h),
                            source.begin() + at * row + h * (c.D + 2));
        }
      };
      std::vector<std::vector<Push>> pushes(static_cast<size_t>(P));
      for (int p = 0; p < P; ++p) {
        for (int64_t i = 0; i < c.queries[p]; ++i) put(p * n + i, p, i);
        if (c.queries[p] == 0) continue;
        pushes[p].push_back(
            {.from = p * n * row, .to = me * n * row, .row = row, .rows = c.queries[p]});
      }
      for (int64_t i = 0; i < c.own; ++i) put(P * n + i, me, n + i);
      // Also to itself where it pushes at all: results may then take the place of what is pushed.
      const cuda::test::DeviceValue<float> from(source.data(), source.size());
      const size_t elems = static_cast<size_t>(results * c.heads * c.D);
      const Floats poison(elems, NAN);
      const cuda::test::DeviceValue<float> out(poison.data(), elems);
      const int64_t live = c.own > 0 ? results : mine;
      const cuda::test::DeviceValue<int64_t> queries(live);
      cuda::MergeStatesParams merge{
          .states = make_view(reinterpret_cast<std::byte*>(rank.inbox()), DType::f32,
                              {1, P * n, c.heads, c.D + 2}),
          .own = c.own > 0 ? from.get() + (P - 1) * n * row : nullptr,
          .out = make_view(reinterpret_cast<std::byte*>(out.get()),
                           c.bf16 ? DType::bf16 : DType::f32, {results, c.heads * c.D}),
          .queries = queries.get(),
          .parts = P};
      rank.run(from.get(), pushes, std::vector<bool>(static_cast<size_t>(P), mine > 0), step,
               c.config, results * c.heads, merge);
      std::vector<std::byte> bytes(elems * sizeof(float));
      check_cuda(cudaMemcpy(bytes.data(), out.get(), bytes.size(), cudaMemcpyDefault), "download");
      Floats got(elems);
      dequantize_row(c.bf16 ? DType::bf16 : DType::f32, bytes.data(), got.data(), std::ssize(got));
      for (int64_t i = 0; i < results; ++i) {
        if (i >= mine && i < n) continue;  // rows of the capacity alone, made of poison or not
        for (int64_t h = 0; h < c.heads; ++h) {
          const auto want = merged(c, step, me, i, h, i >= n);
          for (int64_t d = 0; d < c.D; ++d) {
            const double x = got[(i * c.heads + h) * c.D + d];
            ASSERT_NEAR(x, want[d], (c.bf16 ? 0.01 : 1e-5) * (1 + std::abs(want[d])))
                << "rank " << me << ", step " << step << ", query " << i << ", head " << h;
          }
        }
      }
      if (c.own == 0) {
        for (size_t i = mine * c.heads * c.D; i < elems; ++i) {
          ASSERT_TRUE(std::isnan(got[i])) << "element " << i << " behind the live rows";
        }
      }
      EXPECT_EQ(rank.counted(), std::vector<uint32_t>(P, mine > 0 ? step : 0)) << "rank " << me;
    }
  });
}

constexpr Config kConfigs[] = {{}, {.ctas = 1, .pushers = 1}, {.ctas = 7, .pushers = 5}};

TEST(HandoverOnGpus, StatesAreMerged) {
  for (const Config& config : kConfigs) {
    expect_merged({.queries = {1, 1}, .config = config});
    expect_merged({.queries = {5, 3}, .heads = 5, .D = 126, .config = config});
    expect_merged({.queries = {3, 0}, .config = config});
    expect_merged({.queries = {2, 3}, .own = 3, .bf16 = true, .config = config});
    expect_merged({.queries = {1, 0, 7}, .heads = 1, .D = 62, .config = config});
    expect_merged({.queries = {9, 2, 0, 1}, .own = 1, .heads = 2, .config = config});
    if (testing::Test::HasFatalFailure() || testing::Test::IsSkipped()) return;
  }
}

struct KeepCase {
  std::vector<int64_t> tokens;  // of each rank
  int64_t width = 12;           // of a row of k, and of v: f32 numbers
  Config config;
};

float key_of(int step, int rank, int64_t token, int64_t column) {
  return static_cast<float>(((step * 5 + rank) * 64 + token) * 1024 + column);
}

// Each rank has the keys of all ranks' tokens pushed, and keeps some: at random slots, the others
// have none, or slots that the cache has not.
void expect_kept(const KeepCase& c) {
  const int P = static_cast<int>(c.tokens.size());
  const Topology topology{.devices = P};
  if (!has_gpus(topology)) GTEST_SKIP() << gpus() << " GPUs";
  SCOPED_TRACE(fmt::format("{} tokens of {} floats, {} of {} CTAs", fmt::join(c.tokens, ","),
                           c.width, c.config.pushers, c.config.ctas));
  std::vector<int64_t> first{0};  // of a rank's rows in an inbox
  for (int64_t n : c.tokens) first.push_back(first.back() + n);
  const int64_t all = first.back(), slots = 2 * all + 3;
  fabric::PeerFabric fabric(fabric_config(topology));
  const Mesh mesh({{"world", P}});
  fabric::run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
    const int me = e.rank();
    Rank rank(e, mesh, 2 * all * c.width);
    constexpr int64_t kGap = 4;  // keys lie beside other columns
    std::mt19937 rng(static_cast<unsigned>(me));
    for (int step = 1; step <= 3; ++step) {
      Floats source(2 * c.tokens[me] * (c.width + kGap) + 4, NAN);
      for (int64_t i = 0; i < 2 * c.tokens[me]; ++i) {
        for (int64_t j = 0; j < c.width; ++j) {
          source[i * (c.width + kGap) + j] = key_of(step, me, i, j);
        }
      }
      std::vector<std::vector<Push>> pushes(static_cast<size_t>(P));
      for (int p = 0; p < P && c.tokens[me] > 0; ++p) {
        for (int v : {0, 1}) {
          pushes[p].push_back({.from = v * c.tokens[me] * (c.width + kGap),
                               .to = (v * all + first[me]) * c.width,
                               .row = c.width,
                               .rows = c.tokens[me],
                               .gap = kGap});
        }
      }
      std::vector<int32_t> places(static_cast<size_t>(slots)), at;
      std::iota(places.begin(), places.end(), 0);
      std::ranges::shuffle(places, rng);
      for (int64_t i = 0; i < all; ++i) {
        at.push_back(i % 3 == 1 ? -1 : i % 7 == 3 ? static_cast<int32_t>(slots) : places[i]);
      }
      const cuda::test::DeviceValue<float> from(source.data(), source.size());
      const cuda::test::DeviceValue<int32_t> to_slots(at.data(), at.size());
      const size_t elems = static_cast<size_t>(slots * c.width);
      const Floats poison(elems, NAN);
      const cuda::test::DeviceValue<float> k(poison.data(), elems), v(poison.data(), elems);
      const auto words = [](const float* x) { return reinterpret_cast<const uint4*>(x); };
      const cuda::KeepRowsArgs keep{
          .from = {words(rank.inbox()), words(rank.inbox() + all * c.width)},
          .to = {reinterpret_cast<uint4*>(k.get()), reinterpret_cast<uint4*>(v.get())},
          .at = to_slots.get(),
          .slots = slots,
          .rows = static_cast<int>(all),
          .words = static_cast<int>(c.width / 4)};
      std::vector<bool> awaited;
      std::vector<uint32_t> counts;
      for (int64_t n : c.tokens) awaited.push_back(n > 0), counts.push_back(n > 0 ? step : 0);
      rank.run(from.get(), pushes, awaited, step, c.config, 2 * all, keep);
      for (int of : {0, 1}) {
        Floats want(poison);
        for (int p = 0; p < P; ++p) {
          for (int64_t i = 0; i < c.tokens[p]; ++i) {
            const int64_t slot = at[first[p] + i];
            for (int64_t j = 0; slot >= 0 && slot < slots && j < c.width; ++j) {
              want[slot * c.width + j] = key_of(step, p, of * c.tokens[p] + i, j);
            }
          }
        }
        const Floats got = download(of == 0 ? k.get() : v.get(), elems);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), elems * sizeof(float)), 0)
            << "rank " << me << ", step " << step << (of == 0 ? ", keys" : ", values");
      }
      EXPECT_EQ(rank.counted(), counts) << "rank " << me << ", step " << step;
    }
  });
}

TEST(HandoverOnGpus, KeysAreKept) {
  for (const Config& config : kConfigs) {
    expect_kept({.tokens = {1, 1}, .config = config});
    expect_kept({.tokens = {13, 6}, .width = 260, .config = config});
    expect_kept({.tokens = {0, 5}, .config = config});
    expect_kept({.tokens = {3, 0, 17}, .width = 64, .config = config});
    expect_kept({.tokens = {2, 1, 0, 8}, .width = 4, .config = config});
    if (testing::Test::HasFatalFailure() || testing::Test::IsSkipped()) return;
  }
}

}  // namespace
}  // namespace braid::testing_sp_gpu
