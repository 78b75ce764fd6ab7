#include "braid/parallel/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>

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

// A mesh of three rings of three counts two ranks more than the seven that there are.
TEST(MeshTest, TheLastGroupsMayLackMembers) {
  const Mesh meshes[] = {Mesh({{"part", 3}, {"ring", 3}}), Mesh({{"ring", 7}})};
  for (int rank = 0; rank < 7; ++rank) {
    const std::vector<MeshGroup> groups = groups_of(rank, meshes);
    ASSERT_EQ(groups.size(), 4u) << "the world, two axes, the ring of all";
    for (const MeshGroup& group : groups) {
      EXPECT_EQ(std::ranges::count(group.ranks, rank), 1);
      EXPECT_LT(std::ranges::max(group.ranks), 7);
      for (int other : group.ranks) {
        EXPECT_EQ(groups_of(other, meshes)[&group - groups.data()].ranks, group.ranks);
      }
    }
  }
  EXPECT_EQ(groups_of(2, meshes)[2].ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(groups_of(6, meshes)[2].ranks, std::vector<int>{6});
  EXPECT_EQ(groups_of(6, meshes)[0].ranks.size(), 7u);
}

TEST(MeshTest, BadAxesAreRefused) {
  EXPECT_THROW(Mesh({{"tp", 0}}), Error);
  EXPECT_THROW(Mesh({{"tp", 2}, {"tp", 2}}), Error);
}

// An axis with the groups of an earlier mesh adds none; one with equal groups for a few ranks does.
TEST(MeshTest, MeshesShareGroups) {
  const Mesh meshes[] = {Mesh({{"ring", 2}, {"ulysses", 2}}), Mesh({{"ulysses", 2}, {"ring", 2}}),
                         Mesh({{"torus", 1}, {"ring", 2}, {"ulysses", 2}}), Mesh({{"ring", 4}})};
  const std::vector<std::vector<int>> wanted = {{0, 1, 2, 3}, {0, 2}, {0, 1},
                                                {0, 2},       {0, 1}, {0, 1, 2, 3}};
  const std::vector<MeshGroup> groups = groups_of(0, meshes);
  ASSERT_EQ(groups.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(groups[i].ranks, wanted[i]) << i;
  for (int rank = 1; rank < 4; ++rank) {
    const std::vector<MeshGroup> other = groups_of(rank, meshes);
    ASSERT_EQ(other.size(), groups.size());
    for (size_t i = 0; i < groups.size(); ++i) EXPECT_EQ(other[i].name, groups[i].name);
  }
}

}  // namespace
}  // namespace braid
