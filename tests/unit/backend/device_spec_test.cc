#include "braid/backend/device_spec.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

TEST(DeviceSpec, ReadsWhatItNames) {
  EXPECT_EQ(parse_device("cpu"), (DeviceSpec{.cuda = false, .ids = {}}));
  EXPECT_EQ(parse_device("cuda"), (DeviceSpec{.cuda = true, .ids = {}}));
  EXPECT_EQ(parse_device("cuda:0"), (DeviceSpec{.cuda = true, .ids = {0}}));
  EXPECT_EQ(parse_device("cuda:2,0"), (DeviceSpec{.cuda = true, .ids = {2, 0}})) << "in order";
  EXPECT_EQ(parse_device("cuda:7,6,5,4,3,2,1,0"),
            (DeviceSpec{.cuda = true, .ids = {7, 6, 5, 4, 3, 2, 1, 0}}));
  EXPECT_EQ(parse_device("cuda:1,0,1"), (DeviceSpec{.cuda = true, .ids = {1, 0, 1}}));
  EXPECT_EQ(parse_device("cuda:10,1"), (DeviceSpec{.cuda = true, .ids = {10, 1}}));
  EXPECT_EQ(parse_device("cuda:2147483647"), (DeviceSpec{.cuda = true, .ids = {2147483647}}));
}

TEST(DeviceSpec, CountsGpus) {
  EXPECT_EQ(parse_device("cuda").num_gpus(3), 3);
  EXPECT_EQ(parse_device("cuda:2,0").num_gpus(2), 2);
  EXPECT_EQ(parse_device("cuda:1,0,1,1").num_gpus(4), 2);
}

TEST(DeviceSpec, SpecsDiffer) {
  EXPECT_NE(parse_device("cpu"), parse_device("cuda"));
  EXPECT_NE(parse_device("cuda"), parse_device("cuda:0"));
  EXPECT_NE(parse_device("cuda:0,1"), parse_device("cuda:1,0"));
}

TEST(DeviceSpec, RefusesAnythingElseAndNamesIt) {
  for (const std::string_view text : {"",
                                      "nonsense",
                                      "gpu",
                                      "CPU",
                                      "Cuda",
                                      "cpu ",
                                      " cpu",
                                      "cpu:",
                                      "cpu:0",
                                      "cuda ",
                                      "cudas",
                                      "cuda0",
                                      "cuda0,1",
                                      "0",
                                      ":",
                                      "cuda:",
                                      "cuda: ",
                                      "cuda:,",
                                      "cuda:0,",
                                      "cuda:,0",
                                      "cuda:0,,1",
                                      "cuda:0 ",
                                      "cuda: 0",
                                      "cuda:0, 1",
                                      "cuda:0;1",
                                      "cuda:0:1",
                                      "cuda:-1",
                                      "cuda:0,-1",
                                      "cuda:+1",
                                      "cuda:1.5",
                                      "cuda:0x1",
                                      "cuda:x",
                                      "cuda:all",
                                      "cuda:2147483648",
                                      "cuda:99999999999999999999"}) {
    try {
      parse_device(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(std::string(e.what()), "device '" + std::string(text) +
                                           "': wanted cpu, cuda, or cuda: with a GPU for each "
                                           "rank (cuda:0,1)");
    }
  }
}

}  // namespace
}  // namespace braid
