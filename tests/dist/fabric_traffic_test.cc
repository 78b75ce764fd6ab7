#include <gtest/gtest.h>

#include <numeric>

#include "braid/fabric/collectives/all_gather.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/all_to_all.h"
#include "braid/fabric/collectives/barrier.h"
#include "braid/fabric/collectives/broadcast.h"
#include "braid/fabric/collectives/reduce_scatter.h"
#include "dist/fabric_testing.h"
#include "dist/worlds.h"

// Counted bytes equal the volume that the equations say, per link class.
namespace braid::fabric {
namespace {

struct Volume {
  int64_t machine = 0;
  int64_t cluster = 0;
  bool operator==(const Volume&) const = default;
};

void PrintTo(const Volume& v, std::ostream* out) {
  *out << "machine " << v.machine << ", cluster " << v.cluster;
}

Volume counted(Endpoint& e, const char* tag) {
  return {e.traffic().bytes(Verb::put, LinkClass::machine, tag),
          e.traffic().bytes(Verb::put, LinkClass::cluster, tag)};
}

// Sum over peers of what goes to each.
template <class BytesTo>
Volume volume(Endpoint& e, BytesTo&& bytes_to) {
  Volume v;
  for (int peer = 0; peer < e.world_size(); ++peer) {
    const LinkClass link = e.link(e.rank(), peer);
    if (link == LinkClass::machine) v.machine += bytes_to(peer);
    if (link == LinkClass::cluster) v.cluster += bytes_to(peer);
  }
  return v;
}

class FabricTraffic : public testing::TestWithParam<std::tuple<int, int, bool, int>> {};

TEST_P(FabricTraffic, EqualsTheAnalyticVolume) {
  const auto [machines, devices, emulated, processes] = GetParam();
  const World world{processes};
  if (!world.here()) GTEST_SKIP() << "this build has no UCX";
  LocalFabricConfig config{.ranks = machines * devices, .links = {.machines = machines}};
  if (emulated) config.links.cluster_link = Link{10e9, 1e-6};
  run_world(world, config, [](Endpoint& e) {
    const int P = e.world_size();
    const int me = e.rank();
    Comm comm(e, Group::world(P), {.name = "t", .slot_bytes = 256});
    constexpr int64_t n = 1600;  // whole lines for P = 1, 2, 4, 5; uneven otherwise
    std::vector<float> x(n);
    std::vector<float> y(n * P);

    all_reduce(comm, {}, x.data(), x.data(), n, AllReduceAlgorithm::one_shot);
    EXPECT_EQ(counted(e, "t/all_reduce"), volume(e, [](int) { return n * 4; }));
    e.traffic().reset();

    // Chunks are whole lines of 16 floats, the first n/16 % P one line longer: p gets its chunk of
    // mine, then mine of all.
    all_reduce(comm, {}, x.data(), x.data(), n, AllReduceAlgorithm::two_shot);
    const auto chunk = [&](int p) { return even_part(n / 16, P, p).size() * 64; };
    EXPECT_EQ(counted(e, "t/all_reduce"), volume(e, [&](int p) { return chunk(p) + chunk(me); }));

    const auto counts = uneven_parts(5, P, n / 2);
    std::vector<float> z(std::accumulate(counts.begin(), counts.end(), int64_t{1}));
    reduce_scatter(comm, {}, z.data(), y.data(), counts);
    EXPECT_EQ(counted(e, "t/reduce_scatter"), volume(e, [&](int p) { return counts[p] * 4; }));

    all_gather(comm, {}, z.data(), y.data(), counts);
    EXPECT_EQ(counted(e, "t/all_gather"), volume(e, [&](int) { return counts[me]; }));

    const auto matrix = uneven_parts(6, P * P, n);
    std::vector<std::byte> from(2 * n * P + 16);
    std::vector<std::byte> to(2 * n * P + 16);
    all_to_all(comm, {}, from.data(), to.data(), matrix);
    EXPECT_EQ(counted(e, "t/all_to_all"), volume(e, [&](int p) { return matrix[me * P + p]; }));

    broadcast(comm, {}, from.data(), 999, P - 1);
    EXPECT_EQ(counted(e, "t/broadcast"), volume(e, [&](int) { return me == P - 1 ? 999 : 0; }));

    const auto signals = [&](LinkClass link) {
      return e.traffic().bytes(Verb::signal, link, "t/barrier");
    };
    barrier(comm);
    EXPECT_EQ((Volume{signals(LinkClass::machine), signals(LinkClass::cluster)}),
              volume(e, [](int) { return 8; }));
    EXPECT_EQ(e.traffic().bytes(Verb::put, LinkClass::device), 0);
    EXPECT_EQ(e.traffic().bytes(Verb::get, LinkClass::machine), 0);
    barrier(comm);  // nobody leaves while its peers' signals are under way
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, FabricTraffic,
                         testing::Values(std::tuple(1, 1, false, 0), std::tuple(1, 2, false, 0),
                                         std::tuple(1, 5, false, 0), std::tuple(2, 2, false, 0),
                                         std::tuple(2, 2, true, 0), std::tuple(3, 2, true, 0),
                                         std::tuple(4, 1, true, 0), std::tuple(2, 4, false, 0),
                                         std::tuple(1, 2, false, 2), std::tuple(2, 2, false, 4),
                                         std::tuple(2, 2, false, 2), std::tuple(3, 1, false, 3)));

}  // namespace
}  // namespace braid::fabric
