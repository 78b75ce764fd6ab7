#include "braid/schedule/communication_gain.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(CommunicationGain, IsThePartOfItsCostThatIsWonBack) {
  CommunicationGain gain{.sequential = 10, .without = 6, .seconds = 7};
  EXPECT_DOUBLE_EQ(gain.share().value(), 0.75);
  EXPECT_EQ(to_string(gain),
            "1.43x of sequential, which is 75% of what free communication would give (1.67x)");
  gain.seconds = 10;
  EXPECT_DOUBLE_EQ(gain.share().value(), 0);
}

// What ran slower than sequential hid nothing that anybody gains by, however much it ran beside.
TEST(CommunicationGain, IsNegativeForWhatIsSlower) {
  const CommunicationGain gain{.sequential = 10, .without = 6, .seconds = 18};
  EXPECT_DOUBLE_EQ(gain.share().value(), -2);
  EXPECT_EQ(to_string(gain),
            "0.56x of sequential, which is -200% of what free communication would give (1.67x)");
}

TEST(CommunicationGain, IsNotThereWhereCommunicationCostsNothing) {
  CommunicationGain gain{.sequential = 10, .without = 10, .seconds = 9};
  EXPECT_FALSE(gain.share().has_value());
  EXPECT_EQ(to_string(gain), "1.11x of sequential, where communication costs nothing");
  gain.without = 11;  // noise
  EXPECT_FALSE(gain.share().has_value());
}

}  // namespace
}  // namespace braid
