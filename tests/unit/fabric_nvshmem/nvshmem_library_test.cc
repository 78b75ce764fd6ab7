#include "braid/fabric/nvshmem/nvshmem_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "braid/base/error.h"

namespace braid::fabric {
namespace {

using testing::HasSubstr;

// NVSHMEM_HOME of a test; the library of this machine, if any, is left alone.
class NvshmemLibraryTest : public testing::Test {
 protected:
  void home(const std::string& folder) { setenv("NVSHMEM_HOME", folder.c_str(), 1); }
  static Error refused() {
    try {
      NvshmemLibrary library(13);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInvalidArgument, "no error");
  }
  void TearDown() override { unsetenv("NVSHMEM_HOME"); }
};

TEST_F(NvshmemLibraryTest, AMissingLibraryNamesThePackage) {
  home("/nowhere");
  const Error error = refused();
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("/nowhere/lib/libnvshmem_host.so.3"));
  EXPECT_THAT(error.what(), HasSubstr("pip install nvidia-nvshmem-cu13"));
}

// BRAID_OTHER_NVSHMEM holds libraries of the same name: of version 4, and without functions.
TEST_F(NvshmemLibraryTest, AnotherAbiIsRefusedWithBothVersions) {
  home(BRAID_OTHER_NVSHMEM "/version4");
  const Error error = refused();
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("needs NVSHMEM 3: "));
  EXPECT_THAT(error.what(), HasSubstr("is version 4.1.2"));
}

TEST_F(NvshmemLibraryTest, AMissingFunctionIsNamed) {
  home(BRAID_OTHER_NVSHMEM "/empty");
  const Error error = refused();
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("has no nvshmemx_vendor_get_version_info"));
}

TEST_F(NvshmemLibraryTest, MulticastIsOffWhateverTheUserSets) {
  setenv("NVSHMEM_DISABLE_NVLS", "0", 1);
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  setenv("NVSHMEM_REMOTE_TRANSPORT", "ibrc", 1);
  unsetenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME");
  set_nvshmem_environment();
  EXPECT_STREQ(std::getenv("NVSHMEM_DISABLE_NVLS"), "1");
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  EXPECT_STREQ(std::getenv("TORCH_SYMM_MEM_DISABLE_MULTICAST"), "1");
  EXPECT_STREQ(std::getenv("NVSHMEM_REMOTE_TRANSPORT"), "ibrc") << "what the user set stays";
  EXPECT_STREQ(std::getenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"), "lo");
}

}  // namespace
}  // namespace braid::fabric
