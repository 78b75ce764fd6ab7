#include "braid/kernels/cuda/comm/pull_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::cuda {
namespace {

// Of rank 0 of two machines of two: rank 1 is its neighbour, ranks 2 and 3 are across.
TEST(PullOrder, GoTogetherWhereTheyShareNoPort) {
  const PulledFrom neighbour{1, LinkClass::machine};
  const PulledFrom across{2, LinkClass::cluster}, beside_it{3, LinkClass::cluster};
  const std::vector<PulledFrom> inside{neighbour}, one{across}, other{beside_it};
  const std::vector<PulledFrom> both{across, beside_it}, all{neighbour, across, beside_it};
  EXPECT_FALSE(shares_no_port(one, other));  // of a ring: rank 1 reads from rank 3 meanwhile
  EXPECT_FALSE(shares_no_port(one, both));
  EXPECT_FALSE(shares_no_port(one, all));
  EXPECT_TRUE(shares_no_port(one, one));  // of a torus: queries, then keys
  EXPECT_TRUE(shares_no_port(both, both));
  EXPECT_TRUE(shares_no_port(both, one));
  EXPECT_TRUE(shares_no_port(inside, both));  // what crosses does not wait for what does not
  EXPECT_TRUE(shares_no_port(both, inside));
  EXPECT_TRUE(shares_no_port(all, both));
}

}  // namespace
}  // namespace braid::cuda
