// --device, on a machine without a GPU.
#include <cstdlib>

#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;

class DeviceCliTest : public CliTest {
 protected:
  static std::string run() { return "run -m " + hf() + " -p 'hello world' -n 4 --ignore-eos "; }
};

TEST_F(DeviceCliTest, ThatIsNoneIsWrongUsage) {
  for (const char* device : {"nonsense", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:0,", "cuda:-1"}) {
    const std::string message = fmt::format("device '{}': wanted cpu, cuda", device);
    expect_refused(run() + "--device " + device, 2, message);
    expect_refused("bench -m " + hf() + " -p 1 -n 1 -r 1 --device " + device, 2, message);
  }
  expect_refused(run() + "--device ''", 2, "device");
}

TEST_F(DeviceCliTest, AutoTakesTheCpuWithoutAGpuAndSaysSo) {
  const Outcome cpu = braid(run() + "--device cpu --json");
  ASSERT_EQ(cpu.status, 0) << cpu.err;
  EXPECT_EQ(cpu.err, "");
  for (const char* device : {"", "--device auto", "-ngl 99"}) {
    const Outcome o = braid(run() + "--json " + device);
    ASSERT_EQ(o.status, 0) << o.err;
    EXPECT_THAT(o.err, testing::StartsWith("braid: on the CPU, ")) << device;
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    EXPECT_EQ(json::parse(o.out)["output_ids"], json::parse(cpu.out)["output_ids"]) << device;
    EXPECT_EQ(json::parse(o.out)["device"], "cpu");
  }
  EXPECT_EQ(braid(run() + "-ngl 0").err.find("braid: on"), std::string::npos);
}

TEST_F(DeviceCliTest, AGpuThatIsNotThereFailsTheJob) {
  for (const char* device : {"cuda", "cuda:0", "cuda:7", "cuda:0,1 --tp 2", "cuda --sp ring"}) {
    const Outcome o = braid(run() + "--device " + device);
    EXPECT_EQ(o.status, 1) << device;
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    EXPECT_THAT(o.err, AnyOf(HasSubstr("GPU"), HasSubstr("CUDA"), HasSubstr("NVIDIA driver")));
  }
}

}  // namespace
}  // namespace braid::golden
