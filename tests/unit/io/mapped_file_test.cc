#include "braid/io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/io/expect_error.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using test::expect_error;
using test::TempFolder;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, HoldsTheBytes) {
  const TempFolder folder;
  for (const size_t size : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{100000}}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 7 + size);
    const MappedFile file(folder.write("f", content));
    EXPECT_EQ(file.size(), static_cast<int64_t>(size));
    EXPECT_EQ(text_of(file), content);
    EXPECT_EQ(file.path(), folder.path("f"));
  }
}

TEST(MappedFile, MovingKeepsTheAddress) {
  const TempFolder folder;
  MappedFile a(folder.write("a", "first"));
  MappedFile b(folder.write("b", "second"));
  const std::byte* address = a.bytes().data();
  b = std::move(a);
  EXPECT_EQ(b.bytes().data(), address);
  EXPECT_EQ(text_of(b), "first");
  const MappedFile c(std::move(b));
  EXPECT_EQ(text_of(c), "first");
  EXPECT_EQ(b.size(), 0);  // NOLINT(bugprone-use-after-move)
}

TEST(MappedFile, OutlivesItsName) {
  const TempFolder folder;
  const MappedFile file(folder.write("f", "still here"));
  std::filesystem::remove(folder.path("f"));
  EXPECT_EQ(text_of(file), "still here");
}

TEST(MappedFile, AdviceTakesAnyRange) {
  const TempFolder folder;
  std::string content(5 * 4096 + 17, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i % 251);
  const MappedFile file(folder.write("f", content));
  for (const Advice advice : {Advice::kSequential, Advice::kWillNeed, Advice::kDontNeed}) {
    for (const int64_t offset : {0, 1, 4095, 4096, 5000, 20496, 20497}) {
      for (const int64_t length : {0, 1, 4096, 9000}) {
        if (offset + length <= file.size()) file.advise(offset, length, advice);
      }
    }
    file.advise(0, file.size(), advice);
    EXPECT_EQ(text_of(file), content);
  }
  EXPECT_THROW(file.advise(1, file.size(), Advice::kWillNeed), std::logic_error);
  EXPECT_THROW(file.advise(-1, 1, Advice::kWillNeed), std::logic_error);
  EXPECT_THROW(file.advise(1, INT64_MAX, Advice::kWillNeed), std::logic_error);
}

TEST(MappedFile, WhatIsNoFileIsRefused) {
  const TempFolder folder;
  const auto refused = [&](ErrorCode code, const std::string& path, const std::string& why) {
    expect_error(code, {path, why}, [&] { MappedFile file(path); });
  };
  refused(ErrorCode::kNotFound, folder.path("none"), "no such file");
  refused(ErrorCode::kNotFound, folder.write("f", "x") + "/below", "no such file");
  refused(ErrorCode::kNotFound, "", "no such file");
  refused(ErrorCode::kInvalidArgument, folder.path(), "folder");
  refused(ErrorCode::kInvalidArgument, folder.write("empty", ""), "empty");
  refused(ErrorCode::kInvalidArgument, "/dev/null", "no regular file");
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  refused(ErrorCode::kInvalidArgument, folder.path("pipe"), "no regular file");
  std::filesystem::create_symlink(folder.path("nowhere"), folder.path("dangling"));
  refused(ErrorCode::kNotFound, folder.path("dangling"), "no such file");
  expect_error(ErrorCode::kNotFound, {"no such file"},
               [&] { MappedFile file(folder.path("f") + std::string("\0x", 2)); });
}

TEST(MappedFile, UnreadableFilesSayWhy) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TempFolder folder;
  const std::string path = folder.write("f", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  expect_error(ErrorCode::kResource, {path, "Permission denied"}, [&] { MappedFile file(path); });
}

}  // namespace
}  // namespace braid
