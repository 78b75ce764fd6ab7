#include "braid/io/mapping_fault.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "braid/io/mapped_file.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using test::TempFolder;

constexpr size_t kBytes = 3 * 4096 + 5;

void touch(const std::byte* byte) {
  *static_cast<const volatile std::byte*>(byte);
}

class MappingFaultDeathTest : public testing::Test {
 protected:
  const TempFolder folder_;
  const std::string path_ = folder_.write("model.gguf", std::string(kBytes, 'x'));
};

TEST_F(MappingFaultDeathTest, ACutFileEndsInOneLineThatNamesIt) {
  for (const size_t at : {size_t{4096}, kBytes - 1}) {
    EXPECT_EXIT(
        {
          report_mapping_faults();
          const MappedFile other(folder_.write("other", "y"));
          MappedFile first(path_);
          const MappedFile file = std::move(first);
          std::filesystem::resize_file(path_, 100);
          touch(file.bytes().data() + at);
        },
        testing::ExitedWithCode(1),
        "^braid: .*model.gguf: the file was cut while it was in use: it had 12293 bytes and now "
        "has 100\n$");
    folder_.write("model.gguf", std::string(kBytes, 'x'));
  }
}

TEST_F(MappingFaultDeathTest, AFileThatIsGoneIsNamedToo) {
  EXPECT_EXIT(
      {
        report_mapping_faults();
        const MappedFile file(path_);
        std::filesystem::resize_file(path_, 100);
        std::filesystem::remove(path_);
        touch(file.bytes().data() + 4096);
      },
      testing::ExitedWithCode(1), "model.gguf: the file cannot be read any more");
}

TEST_F(MappingFaultDeathTest, OtherBusErrorsStayWhatTheyWere) {
  // Sent by a process.
  EXPECT_EXIT(
      {
        report_mapping_faults();
        const MappedFile file(path_);
        std::raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "^$");
  // A fault in a mapping of somebody else, where a MappedFile was before.
  EXPECT_EXIT(
      {
        report_mapping_faults();
        void* address = nullptr;
        {
          const MappedFile file(path_);
          address = const_cast<std::byte*>(file.bytes().data());
        }
        const int fd = ::open(path_.c_str(), O_RDONLY);
        void* mapped = ::mmap(address, kBytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
        std::filesystem::resize_file(path_, 100);
        touch(static_cast<const std::byte*>(mapped) + 4096);
      },
      testing::KilledBySignal(SIGBUS), "^$");
  // A handler that was there before is called.
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { ::_exit(7); });
        report_mapping_faults();
        std::raise(SIGBUS);
      },
      testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace braid
