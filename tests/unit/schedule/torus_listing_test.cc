// docs/sequence-parallel.md explains each launch of a printed torus step: here is what is printed.
#include <gtest/gtest.h>

#include <fstream>

#include "unit/schedule/planned_attention.h"

namespace braid {
namespace {

TEST(TorusListing, DocsShowTheLaunches) {
  const PlannedAttention plan =
      planned_attention({.mode = SpMode::torus, .machines = "2x1", .stages = true, .text = 5});
  const std::string text = to_string(plan.schedules[0], plan.programs[0]);
  const size_t begin = text.find('\n') + 1;
  const std::string launches = text.substr(begin, text.find("arena ") - begin);
  std::ifstream file(BRAID_TEST_DATA "/../docs/sequence-parallel.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(docs.find(launches), std::string::npos) << "the page lacks these launches:\n"
                                                    << launches;
}

}  // namespace
}  // namespace braid
