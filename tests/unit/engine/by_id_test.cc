#include "braid/engine/requests/by_id.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

namespace braid {
namespace {

TEST(ById, FindsWhatAMapFinds) {
  std::mt19937 random(5);
  ById<uint64_t, std::shared_ptr<int>> list;
  std::map<uint64_t, std::shared_ptr<int>> map;
  uint64_t last = 0;
  const auto check = [&](uint64_t id) {
    const auto it = list.find(id);
    ASSERT_EQ(it != list.end(), map.contains(id)) << id;
    if (it == list.end()) {
      EXPECT_THROW(list.at(id), std::logic_error);
      return;
    }
    EXPECT_EQ(it->first, id);
    EXPECT_EQ(list.at(id), map.at(id));
  };
  for (int turn = 0; turn < 2000; ++turn) {
    const auto kind = random() % 4;
    if (kind == 0) {
      last += 1 + random() % 3;
      map[last] = std::make_shared<int>(turn);
      list.add(last, map[last]);
    } else if (kind == 1 && last > 0) {
      const uint64_t id = 1 + random() % last;
      if (list.contains(id)) list.erase(list.find(id));
      map.erase(id);
    } else if (kind == 2) {  // in order, as a step asks
      for (uint64_t id = random() % (last + 1); id <= last + 1; ++id) check(id);
    } else {
      for (int i = 0; i < 20; ++i) check(random() % (last + 3));
    }
    EXPECT_EQ(list.empty(), map.empty());
  }
}

TEST(ById, RefusesAnIdThatDoesNotRise) {
  ById<int, const char*> list;
  list.add(4, "four");
  EXPECT_THROW(list.add(4, "again"), std::logic_error);
  EXPECT_THROW(list.add(3, "three"), std::logic_error);
}

}  // namespace
}  // namespace braid
