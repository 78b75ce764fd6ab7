#include "braid/io/text_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "unit/io/expect_error.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

TEST(TextFile, IsWrittenWholeOrNotAtAll) {
  const test::TempFolder folder;
  const std::string path = folder.write("a.txt", "old");
  write_file(path, "new");
  EXPECT_EQ(read_text(path), "new");
  fs::create_directory(path + ".part");  // in the way
  test::expect_error(ErrorCode::kResource, {"cannot write " + path},
                     [&] { write_file(path, "x"); });
  EXPECT_EQ(read_text(path), "new");
}

// A rename would put a file in the place of the device.
TEST(TextFile, DevicesAndPipesStayWhatTheyAre) {
  const test::TempFolder folder;
  const std::string full = folder.path("full"), pipe = folder.path("pipe");
  fs::create_symlink("/dev/full", full);
  test::expect_error(ErrorCode::kResource, {"cannot write " + full, "No space left on device"},
                     [&] { write_file(full, "x"); });
  EXPECT_TRUE(fs::is_symlink(full));
  EXPECT_TRUE(fs::is_character_file(full));
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read_text(pipe); });
  write_file(pipe, "through a pipe");
  reader.join();
  EXPECT_EQ(got, "through a pipe");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

}  // namespace
}  // namespace braid
