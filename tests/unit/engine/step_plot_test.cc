#include "braid/engine/step_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(StepPlot, StepsOfALoopAreLanesOfTheHostAndTheDevice) {
  StepPlot plot;
  EXPECT_TRUE(plot.empty());
  LoopStats stats;
  for (int i = 0; i < 100; ++i) {
    const double at = 1e-3 * i;
    stats.trace.push_back({.enqueue_begin = at,
                           .enqueue_end = at + 1e-4,
                           .wait_begin = at + 2e-4,
                           .wait_end = i == 99 ? 0 : at + 9e-4,
                           .device_begin = at + 1e-4,
                           .device_end = at + 8e-4});
  }
  plot.add(stats);
  EXPECT_FALSE(plot.empty());
  const std::string svg = plot.svg();
  EXPECT_THAT(svg, HasSubstr("64 decode steps of the device, measured, 63.900 ms"));
  EXPECT_THAT(svg, HasSubstr("a step as a whole</text>"));
  EXPECT_THAT(svg, HasSubstr("rank 0 host</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>step 64: 700.0 us</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("step 65")));
  EXPECT_THAT(svg, Not(HasSubstr("communication")));
}

}  // namespace
}  // namespace braid
