#include "braid/io/gguf_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/io/expect_error.h"
#include "unit/io/gguf_parsed.h"

namespace braid {
namespace {

using test::encoded;
using test::expect_error;
using test::GgufWriter;
using test::with_all_types;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Parsed = test::ParsedGguf;

TEST(GgufMetadata, ReadsEveryScalarType) {
  const Parsed p(with_all_types().build());
  const GgufMetadata& m = p.metadata();
  EXPECT_EQ(m.get<uint32_t>("u8"), 200u);
  EXPECT_EQ(m.get<int32_t>("i8"), -100);
  EXPECT_EQ(m.get<int64_t>("u16"), 60000);
  EXPECT_EQ(m.get<int32_t>("i16"), -30000);
  EXPECT_EQ(m.get<uint32_t>("u32"), 4000000000u);
  EXPECT_EQ(m.get<int32_t>("i32"), -2000000000);
  EXPECT_EQ(m.get<float>("f32"), 0.5f);
  EXPECT_EQ(m.get<bool>("bool"), true);
  EXPECT_EQ(m.get<std::string_view>("string"), "ein Wort");
  EXPECT_EQ(m.get<uint64_t>("u64"), UINT64_MAX);
  EXPECT_EQ(m.get<int64_t>("i64"), INT64_MIN);
  EXPECT_EQ(m.get<double>("f64"), 0.1);
  EXPECT_EQ(m.get<float>("f64"), 0.1f);
  EXPECT_EQ(m.get<double>("f32"), 0.5);
}

TEST(GgufMetadata, ReadsArrays) {
  GgufWriter w;
  w.array("words", 8, {encoded("a"), encoded(""), encoded("cd")});
  w.array("floats", 6, {encoded(1.5f), encoded(-2.0f)});
  w.array("kinds", 5, {encoded<int32_t>(3), encoded<int32_t>(-1)});
  w.array("bytes", 0, {encoded<uint8_t>(1), encoded<uint8_t>(255)});
  w.array("flags", 7, {encoded<uint8_t>(1), encoded<uint8_t>(0)});
  w.array("none", 8, {});
  const Parsed p(w.build());
  const GgufMetadata& m = p.metadata();
  EXPECT_THAT(m.get<std::vector<std::string_view>>("words"), ElementsAre("a", "", "cd"));
  EXPECT_THAT(m.get<std::vector<float>>("floats"), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(m.get<std::vector<int32_t>>("kinds"), ElementsAre(3, -1));
  EXPECT_THAT(m.get<std::vector<int64_t>>("bytes"), ElementsAre(1, 255));
  EXPECT_THAT(m.get<std::vector<bool>>("flags"), ElementsAre(true, false));
  EXPECT_THAT(m.get<std::vector<std::string_view>>("none"), ElementsAre());
}

TEST(GgufMetadata, StringsAreNotCopied) {
  GgufWriter w;
  w.array("words", 8, {encoded("a string that is longer than a small buffer holds")});
  const Parsed p(w.build());
  const auto word = p.metadata().get<std::vector<std::string_view>>("words").at(0);
  const auto* at = reinterpret_cast<const std::byte*>(word.data());
  EXPECT_GE(at, p.storage.data());
  EXPECT_LE(at + word.size(), p.storage.data() + p.storage.size());
}

TEST(GgufMetadata, AbsentKeys) {
  const Parsed p(with_all_types().build());
  EXPECT_FALSE(p.metadata().contains("u9"));
  EXPECT_EQ(p.metadata().find<uint32_t>("u9"), std::nullopt);
  EXPECT_EQ(p.metadata().get_or<uint32_t>("u9", 7), 7u);
  EXPECT_EQ(p.metadata().get_or<uint32_t>("u8", 7), 200u);
  expect_error(ErrorCode::kNotFound, {"m.gguf", "'u9'", "u32"},
               [&] { p.metadata().get<uint32_t>("u9"); });
}

TEST(GgufMetadata, WrongTypesAreRefusedByName) {
  GgufWriter w = with_all_types();
  w.array("mixed", 5, {encoded<int32_t>(3), encoded<int32_t>(-1)});
  const Parsed p(w.build());
  const GgufMetadata& m = p.metadata();
  const auto refused = [](const std::vector<std::string>& parts, const auto& run) {
    expect_error(ErrorCode::kMalformed, parts, run);
  };
  refused({"'string'", "'ein Wort'", "(string)", "u32"}, [&] { m.get<uint32_t>("string"); });
  refused({"'u8'", "200", "(u8)", "string"}, [&] { m.get<std::string_view>("u8"); });
  refused({"'bool'", "(bool)", "i64"}, [&] { m.get<int64_t>("bool"); });
  refused({"'u8'", "bool"}, [&] { m.get<bool>("u8"); });
  refused({"'i32'", "-2000000000", "f32 or f64"}, [&] { m.get<float>("i32"); });
  refused({"'f32'", "0.5"}, [&] { m.get<int32_t>("f32"); });
  refused({"'i32'", "array of i32"}, [&] { m.get<std::vector<int32_t>>("i32"); });
  refused({"'mixed'", "[3, -1]", "array of 2 i32"}, [&] { m.get<int32_t>("mixed"); });
  refused({"'mixed'", "array of u32"}, [&] { m.get<std::vector<uint32_t>>("mixed"); });
  refused({"'mixed'"}, [&] { m.get<std::vector<std::string_view>>("mixed"); });
}

TEST(GgufMetadata, IntegersOutOfRangeAreRefused) {
  const Parsed p(with_all_types().build());
  const GgufMetadata& m = p.metadata();
  expect_error(ErrorCode::kMalformed, {"-100", "u32"}, [&] { m.get<uint32_t>("i8"); });
  expect_error(ErrorCode::kMalformed, {"4000000000"}, [&] { m.get<int32_t>("u32"); });
  expect_error(ErrorCode::kMalformed, {"18446744073709551615", "i64"},
               [&] { m.get<int64_t>("u64"); });
  expect_error(ErrorCode::kMalformed, {"-9223372036854775808"}, [&] { m.get<int32_t>("i64"); });
}

TEST(GgufMetadata, PreviewsAreShort) {
  GgufWriter w;
  w.text("long", std::string(1000, 'x'));
  w.text("odd", std::string("tab\tbad\xff line\n\x00 end", 19) + "\xc3\xa9");
  w.array("words", 8, std::vector<std::string>(1000, encoded("word")));
  const Parsed p(w.build());
  const auto shown = [&](std::string_view key) { return preview(*p.metadata().value(key)); };
  EXPECT_LT(shown("long").size(), 80u);
  EXPECT_THAT(shown("long"), HasSubstr("..."));
  EXPECT_EQ(shown("odd"), "'tab\\x09bad\\xff line\\x0a\\x00 end\xc3\xa9'");
  EXPECT_LT(shown("words").size(), 90u);
  EXPECT_THAT(shown("words"), HasSubstr("'word', 'word', "));
  EXPECT_EQ(type_name(*p.metadata().value("words")), "array of 1000 string");
  EXPECT_EQ(p.metadata().entries().at(2).key, "words");
}

}  // namespace
}  // namespace braid
