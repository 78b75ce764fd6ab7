#include "braid/engine/calibrate.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "braid/engine/timed_step.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"

namespace braid {
namespace {

TEST(Calibrate, MeasuresEveryKindOfOpThatAForwardPassHas) {
  std::vector<std::string> said;
  const Profile p =
      calibrate_cpu({.threads = 1,
                     .dtypes = {DType::q4_1, DType::q6_k},
                     .most_rows = 32,
                     .progress = [&](const std::string& what) { said.push_back(what); }});
  EXPECT_EQ(p.name, "cpu-1");
  EXPECT_TRUE(p.shared_units);
  EXPECT_FALSE(said.empty());
  for (const char* dtype : {"q4_1", "q6_k"}) {
    for (const char* kind : {"linear", "gated_linear"}) {
      const Rate* rate = p.find(kind, dtype);
      ASSERT_NE(rate, nullptr) << kind << " " << dtype;
      ASSERT_EQ(rate->points.size(), 4u);
      // More rows share each weight.
      EXPECT_GT(rate->at(32), rate->at(1)) << kind << " " << dtype;
    }
  }
  for (const char* dtype : {"f16", "bf16", "f32"}) EXPECT_NE(p.find("attention", dtype), nullptr);
  for (const char* kind :
       {"rms_norm", "add_rms_norm", "rope_append", "embedding", "add", "gather_rows"}) {
    EXPECT_NE(p.find(kind, ""), nullptr) << kind;
  }
  const Profile read = parse_profile(to_json(p), "calibrated");
  EXPECT_EQ(read.rates.size(), p.rates.size());
}

TEST(Calibrate, RefusesThreadCountsThatAreNone) {
  EXPECT_THROW(calibrate_cpu({.threads = -1}), Error);
  EXPECT_THROW(calibrate_cpu({.threads = 1000000}), Error);
}

TEST(TimedStep, TimesEachLaunchOfAProgram) {
  Builder b("two", {64, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {64, 256}, BatchAxis::token});
  const ValueId y = ops::rms_norm(b, x, b.weight("norm", {DType::f32, {256}}), {1e-5f, 256});
  Program program = b.finish({ops::linear(b, y, {b.weight("w", {DType::f32, {512, 256}})})});
  const int64_t bytes = timed_weight_bytes(program);
  EXPECT_EQ(bytes, 512 * 256 * 4) << "vectors are ones and take nothing";
  std::vector<std::byte> weights(static_cast<size_t>(bytes));
  cpu::ThreadPool pool(1);
  cpu::KernelTable table(1);
  cpu::add_cpu_kernels(table);
  TimedStep step(std::move(program), table, pool, weights);
  int evictions = 0;
  const std::vector<double> seconds = step.run({64, 1, 1}, 5, [&] { ++evictions; });
  EXPECT_EQ(evictions, 5);
  ASSERT_EQ(seconds.size(), 2u);
  for (double s : seconds) EXPECT_GT(s, 0);
  EXPECT_GT(step.overhead(), 0);
}

TEST(TimedStep, MedianIsTheLowerMiddle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({4, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2);
}

}  // namespace
}  // namespace braid
