#include "braid/fabric/link.h"

#include <gtest/gtest.h>

#include <limits>

#include "braid/base/error.h"
#include "braid/fabric/group.h"
#include "braid/fabric/traffic.h"

namespace braid::fabric {
namespace {

TEST(LinkModel, ClassesFollowMachinesTimesDevices) {
  const LinkModel model{.machines = 2};  // ranks 0 1 2 | 3 4 5
  EXPECT_EQ(model.between(4, 4, 6), LinkClass::device);
  EXPECT_EQ(model.between(0, 2, 6), LinkClass::machine);
  EXPECT_EQ(model.between(2, 3, 6), LinkClass::cluster);
  EXPECT_EQ(model.between(5, 0, 6), LinkClass::cluster);
}

TEST(LinkModel, OnlyClassesWithASpeedAreEmulated) {
  const LinkModel model{.machines = 2, .cluster_link = Link{12.5e9, 5e-6}};
  EXPECT_FALSE(model.emulated(LinkClass::device));
  EXPECT_FALSE(model.emulated(LinkClass::machine));
  EXPECT_TRUE(model.emulated(LinkClass::cluster));
  const LinkModel jittered{.jitter = Jitter{1, 1e-3}};
  EXPECT_FALSE(jittered.emulated(LinkClass::device));
  EXPECT_TRUE(jittered.emulated(LinkClass::machine));
}

TEST(LinkModel, DescribesItselfAsEmulated) {
  EXPECT_EQ(LinkModel{}.describe(4), "1 machine x 4 devices");
  const LinkModel model{.machines = 2, .cluster_link = Link{12.5e9, 5e-6}};
  EXPECT_EQ(model.describe(4), "emulated 2 machines x 2 devices, other machine 12.5 GB/s + 5 us");
}

TEST(LinkModel, RefusesWhatCannotBe) {
  EXPECT_THROW(LinkModel{.machines = 3}.validate(4), Error);
  EXPECT_THROW(LinkModel{.machines = 0}.validate(4), Error);
  LinkModel{.machines = 4, .racks = 2}.validate(8);
  EXPECT_THROW((LinkModel{.machines = 4, .racks = 3}.validate(8)), Error);
  EXPECT_THROW((LinkModel{.machines = 4, .racks = 0}.validate(8)), Error);
  EXPECT_THROW((LinkModel{.machine_link = Link{0, 0}}.validate(4)), Error);
  EXPECT_THROW((LinkModel{.machine_link = Link{1e9, -1}}.validate(4)), Error);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW((LinkModel{.cluster_link = Link{nan, 0}}.validate(4)), Error);
  EXPECT_THROW((LinkModel{.jitter = Jitter{0, 2.0}}.validate(4)), Error);
}

TEST(Group, KnowsItsMembers) {
  EXPECT_EQ(Group::strided(1, 3, 2).ranks, (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(Group::strided(1, 3, 2).validate(6, 3), 1);
  EXPECT_THROW(Group::strided(1, 3, 2).validate(5, 3), Error);  // rank 5 of 5
  EXPECT_THROW(Group::strided(1, 3, 2).validate(6, 2), Error);  // not a member
  EXPECT_THROW((Group{{0, 1, 0}}.validate(2, 1)), Error);       // twice
}

TEST(Traffic, CountsByTagVerbAndLink) {
  TagTable tags;
  const Tag a = tags.intern("tp/all_reduce");
  const Tag b = tags.intern("sp/all_to_all");
  EXPECT_EQ(tags.intern("tp/all_reduce").id, a.id);
  TrafficCounters counters(tags);
  counters.add(a, Verb::put, LinkClass::machine, 100);
  counters.add(a, Verb::put, LinkClass::machine, 11);
  counters.add(a, Verb::put, LinkClass::cluster, 1000);
  counters.add(b, Verb::get, LinkClass::cluster, 7);
  EXPECT_EQ(counters.bytes(Verb::put, LinkClass::machine), 111);
  EXPECT_EQ(counters.bytes(Verb::put, LinkClass::cluster, "tp/"), 1000);
  EXPECT_EQ(counters.bytes(Verb::put, LinkClass::cluster, "sp/"), 0);
  EXPECT_EQ(counters.bytes(Verb::get, LinkClass::cluster), 7);
  const auto entries = counters.entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].tag, "tp/all_reduce");
  EXPECT_EQ(entries[0].messages, 2);
  counters.reset();
  EXPECT_TRUE(counters.entries().empty());
}

TEST(Traffic, BoundsTheNumberOfTags) {
  TagTable tags;
  for (int i = 1; i < TagTable::kMaxTags; ++i) tags.intern(std::to_string(i));
  try {
    tags.intern("one too many");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
  }
  EXPECT_NO_THROW(tags.intern("1"));
}

}  // namespace
}  // namespace braid::fabric
