#include "braid/parallel/mesh.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "braid/parallel/topology.h"

namespace braid {
namespace {

TEST(MeshTest, GroupsAreLinesOfAnAxis) {
  const Mesh mesh({{"dp", 2}, {"tp", 3}});
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.group(4, "tp"), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(mesh.group(4, "dp"), (std::vector<int>{1, 4}));
  EXPECT_EQ(mesh.group(4, "ring"), (std::vector<int>{4}));
  EXPECT_EQ(mesh.coordinate(4, "dp"), 1);
  EXPECT_EQ(mesh.coordinate(4, "tp"), 1);
  EXPECT_EQ(mesh.size("ring"), 1);
}

TEST(MeshTest, EveryRankIsInItsOwnGroupAtItsCoordinate) {
  const Mesh mesh({{"a", 3}, {"b", 1}, {"c", 4}});
  for (int rank = 0; rank < mesh.size(); ++rank) {
    for (const Mesh::Axis& axis : mesh.axes()) {
      const auto group = mesh.group(rank, axis.name);
      ASSERT_EQ(std::ssize(group), axis.size);
      EXPECT_EQ(group[static_cast<size_t>(mesh.coordinate(rank, axis.name))], rank);
    }
  }
}

TEST(MeshTest, BadAxesAreRefused) {
  EXPECT_THROW(Mesh({{"tp", 0}}), Error);
  EXPECT_THROW(Mesh({{"tp", 2}, {"tp", 2}}), Error);
}

TEST(TopologyTest, ParsesMachinesAndDevices) {
  const Topology topology = parse_topology("2x4");
  EXPECT_EQ(topology.ranks(), 8);
  EXPECT_EQ(topology.link(0, 3), LinkClass::machine);
  EXPECT_EQ(topology.link(3, 4), LinkClass::cluster);
  EXPECT_EQ(topology.link(5, 5), LinkClass::device);
  for (const char* bad :
       {"", "2", "x", "2x", "x2", "0x2", "2x-1", "2x4x8", "axb", "65537x1", "100000x100000"}) {
    EXPECT_THROW(parse_topology(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace braid
