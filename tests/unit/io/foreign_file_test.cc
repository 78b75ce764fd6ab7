#include "braid/io/foreign_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "braid/io/json_object.h"
#include "braid/io/model_file.h"
#include "unit/io/expect_error.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Optional;

std::optional<std::string_view> known(std::string_view text) {
  return foreign_file(std::as_bytes(std::span(text)));
}

constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4943274328\n";

TEST(ForeignFile, IsRecognized) {
  EXPECT_THAT(known(kPointer), Optional(HasSubstr("Git LFS")));
  EXPECT_THAT(known("\n <!DocType HTML>"), Optional(HasSubstr("web page")));
  EXPECT_THAT(known("\xef\xbb\xbf<html lang=\"en\">"), Optional(HasSubstr("web page")));
  EXPECT_THAT(known("Entry not found"), Optional(HasSubstr("server's refusal")));
  EXPECT_THAT(known("PK\x03\x04..."), Optional(HasSubstr("PyTorch")));
  EXPECT_THAT(known("\x1f\x8b\x08"), Optional(HasSubstr("gzip")));
  EXPECT_THAT(known("tjgg\x01"), Optional(HasSubstr("before GGUF")));
}

TEST(ForeignFile, ModelsAndJsonAreNot) {
  for (const std::string_view text :
       {"", " ", "\n\n", "GGUF\x03", "{}", "[1]", "\"version https://\"", "version", "p", "<",
        "\x20\x01\x00\x00\x00\x00\x00\x00{\"a\""}) {
    EXPECT_EQ(known(text), std::nullopt) << text;
  }
  EXPECT_EQ(known(std::string(1000, ' ')), std::nullopt);
}

TEST(ForeignFile, IsNamedWhereverAModelIsOpened) {
  const test::TempFolder folder;
  const auto refused = [&](ErrorCode code, const std::string& what, const std::string& path) {
    test::expect_error(code, {path, what}, [&] { open_model_file(path); });
  };
  refused(ErrorCode::kInvalidArgument, "Git LFS", folder.write("m.gguf", kPointer));
  refused(ErrorCode::kInvalidArgument, "web page", folder.write("w.gguf", "<html>"));
  folder.write("config.json", kPointer);
  test::expect_error(ErrorCode::kMalformed, {"config.json: is a Git LFS pointer"},
                     [&] { open_model_file(folder.path()); });
  folder.write("config.json", "{}");
  folder.write("model.safetensors", kPointer);
  test::expect_error(ErrorCode::kInvalidArgument, {"model.safetensors: is a Git LFS pointer"},
                     [&] { open_model_file(folder.path()); });
}

}  // namespace
}  // namespace braid
