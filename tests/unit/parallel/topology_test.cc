// Racks, machines and devices: their text, the order of their ranks, and the levels that they make.
#include "braid/parallel/topology.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "braid/parallel/attention/key_levels.h"

namespace braid {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_topology(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << text;
    return error.what();
  }
  return "none";
}

TEST(Topology, ParsesMachinesAndDevices) {
  const Topology topology = parse_topology("2x4");
  EXPECT_EQ(topology.ranks(), 8);
  EXPECT_EQ(topology.racks, 1);
  EXPECT_EQ(topology.link(0, 3), LinkClass::machine);
  EXPECT_EQ(topology.link(3, 4), LinkClass::cluster);
  EXPECT_EQ(topology.link(5, 5), LinkClass::device);
  EXPECT_EQ(sizes_of(topology), "2x4");
}

TEST(Topology, RanksFillMachinesAndMachinesFillRacks) {
  const Topology topology = parse_topology("2x3x4");
  EXPECT_EQ(topology.racks, 2);
  EXPECT_EQ(topology.machines, 6) << "in both racks";
  EXPECT_EQ(topology.devices, 4);
  EXPECT_EQ(topology.ranks_of_rack(), 12);
  ASSERT_EQ(topology.ranks(), 24);
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    EXPECT_EQ(topology.machine_of(rank), rank / 4);
    EXPECT_EQ(topology.rack_of(rank), rank / 12);
  }
  EXPECT_EQ(topology.link(8, 11), LinkClass::machine);
  EXPECT_EQ(topology.link(8, 12), LinkClass::cluster) << "machines of other racks are others too";
  EXPECT_EQ(sizes_of(topology), "2x3x4");
  EXPECT_EQ(to_string(topology), "2x3x4");
}

TEST(Topology, OneRackIsNone) {
  const Topology one = parse_topology("1x3x4"), plain = parse_topology("3x4");
  EXPECT_EQ(one.racks, plain.racks);
  EXPECT_EQ(one.machines, plain.machines);
  EXPECT_EQ(one.devices, plain.devices);
  EXPECT_EQ(sizes_of(one), "3x4");
}

TEST(Topology, RefusesOtherTextsInOneLine) {
  for (const char* bad : {"", "2", "x", "2x", "x2", "0x2", "2x-1", "axb", "2x4x", "2x4xa", "0x2x2",
                          "2x0x2", "2x2x0", "2x2x2x2", "2x 2", "99999999999x1"}) {
    EXPECT_EQ(refusal(bad), fmt::format("machines '{}': wanted MACHINESxDEVICES, such as 2x4, or "
                                        "RACKSxMACHINESxDEVICES",
                                        bad));
  }
  EXPECT_EQ(refusal("65537x1"), "machines '65537x1': 65537 devices, at most 65536");
  EXPECT_EQ(refusal("2x32768x2"), "machines '2x32768x2': 131072 devices, at most 65536");
  EXPECT_EQ(refusal("100000x100000"),
            "machines '100000x100000': 10000000000 devices, at most 65536");
  EXPECT_EQ(refusal("2147483647x2147483647x2147483647").find("machines '2147483647x"), 0);
}

TEST(Topology, LevelsAreMachinesRacksAndAll) {
  const auto groups = [](const char* text) { return nested_groups(parse_topology(text)); };
  using Groups = std::vector<int>;
  EXPECT_EQ(groups("2x2x2"), (Groups{2, 4, 8}));
  EXPECT_EQ(groups("1x2x2"), (Groups{2, 4}));
  EXPECT_EQ(groups("2x1x2"), (Groups{2, 4}));
  EXPECT_EQ(groups("2x2x1"), (Groups{2, 4}));
  EXPECT_EQ(groups("1x4"), (Groups{4}));
  EXPECT_EQ(groups("1x1"), Groups{});
}

// Parts of a zigzag's first half, by the distance of their ranks.
TEST(Topology, KeysOfFartherRanksAreThinnedMore) {
  const Topology topology = parse_topology("2x2x2");
  const KeyLevels levels = key_levels({0.5, 0.25, 0.1}, {}, topology);
  EXPECT_EQ(levels.groups, (std::vector<int>{2, 4, 8}));
  for (int a = 0; a < topology.ranks(); ++a) {
    for (int b = 0; b < topology.ranks(); ++b) {
      const size_t want = topology.machine_of(a) == topology.machine_of(b) ? 0
                          : topology.rack_of(a) == topology.rack_of(b)     ? 1
                                                                           : 2;
      const PromptPart reader{.rank = a}, part{.rank = b, .rows = 100};
      EXPECT_EQ(level_of(levels, reader, part), want) << a << " " << b;
      EXPECT_EQ(kept_keys(levels, reader, part), (std::vector{50, 25, 10}[want]));
    }
  }
}

TEST(Topology, OneShareIsOneLevelAndSeveralAreTheTopologys) {
  const Topology racks = parse_topology("2x2x2");
  EXPECT_EQ(key_levels({0.5}, {}, racks), key_levels({0.5}, {}, 8));
  EXPECT_EQ(key_levels({0.5, 0.2}, {4, 8}, racks), key_levels({0.5, 0.2}, {4, 8}, 8));
  EXPECT_EQ(key_levels({0.5, 0.5}, {}, racks).keep, (std::vector<double>{0.5, 0.5, 0.25}));
  try {
    key_levels({0.5, 0.4, 0.3}, {}, parse_topology("2x4"));
    FAIL() << "three shares for two levels";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "--keep has 3 shares, wanted 1 to 2: one for each level of --levels (with --sp also "
        "of --machines)");
  }
}

}  // namespace
}  // namespace braid
