// Files that break the format, each refused with a line that names what is wrong.
#include <gtest/gtest.h>

#include "unit/io/expect_error.h"
#include "unit/io/gguf_parsed.h"

namespace braid {
namespace {

using test::encoded;
using test::expect_error;
using test::GgufWriter;
using test::with_all_types;
using Parsed = test::ParsedGguf;

void expect_refused(const GgufWriter& writer, const std::vector<std::string>& parts,
                    ErrorCode code = ErrorCode::kMalformed) {
  std::vector<std::string> all = parts;
  all.emplace_back("m.gguf: ");
  expect_error(code, all, [&] { Parsed parsed(writer.build()); });
}

TEST(GgufFormat, VersionsAndMagic) {
  GgufWriter w;
  w.version = 2;
  EXPECT_EQ(Parsed(w.build()).contents.version, 2u);
  w.version = 1;
  expect_refused(w, {"version 1", "2 and 3"}, ErrorCode::kUnsupported);
  w.version = 4;
  expect_refused(w, {"version 4"}, ErrorCode::kUnsupported);
  w.version = 0;
  expect_refused(w, {"version 0"}, ErrorCode::kUnsupported);
  w.version = 3u << 24;
  expect_refused(w, {"big-endian"}, ErrorCode::kUnsupported);
  w.version = 3;
  w.magic = "GGML";
  expect_refused(w, {"'GGML'", "'GGUF'"});
  expect_error(ErrorCode::kMalformed, {"m.gguf"}, [] { parse_gguf("m.gguf", {}); });
}

TEST(GgufFormat, CountsAboveTheFileAreRefused) {
  GgufWriter w = with_all_types();
  for (const uint64_t count : {uint64_t{1000}, uint64_t{1} << 32, uint64_t{1} << 62, UINT64_MAX}) {
    GgufWriter bad = w;
    bad.num_tensors = count;
    expect_refused(bad, {"list of tensors", std::to_string(count), "at most"});
    bad = w;
    bad.num_entries = count;
    expect_refused(bad, {"list of metadata", std::to_string(count), "at most"});
  }
  w.num_entries = 13;  // one more than there are, and none is left
  expect_refused(w, {"metadata key", "cut off"});
  w.num_entries = 12;
  w.num_tensors = 1;
  expect_refused(w, {"tensor name", "cut off"});
}

TEST(GgufFormat, StringLengthsAboveTheFileAreRefused) {
  for (const uint64_t length : {uint64_t{9}, uint64_t{1} << 40, UINT64_MAX}) {
    GgufWriter w;
    w.entry("text", 8, encoded(length) + "12345678");
    expect_refused(w, {"'text'", std::to_string(length), "at most 8"});
    GgufWriter inner;
    inner.array("words", 8, {encoded("fine"), encoded(length) + "12345678"});
    expect_refused(inner, {"'words'", std::to_string(length)});
    std::string key_only = GgufWriter().build().substr(0, 16) + encoded<uint64_t>(1);
    key_only += encoded(length) + "12345678";
    expect_error(ErrorCode::kMalformed, {"metadata key", std::to_string(length)},
                 [&] { Parsed parsed(key_only); });
  }
}

TEST(GgufFormat, ArrayLengthsAboveTheFileAreRefused) {
  const std::vector<uint32_t> types = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12};
  for (const uint32_t type : types) {
    for (const uint64_t count : {uint64_t{17}, uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX}) {
      GgufWriter w;
      w.array("list", type, {std::string(16, '\0')}, count);
      expect_refused(w, {"'list'", std::to_string(count), "at most"});
    }
  }
}

TEST(GgufFormat, TypesOutOfRangeAreRefused) {
  for (const uint32_t type : {13u, 255u, 0x80000000u, UINT32_MAX}) {
    GgufWriter w;
    w.entry("k", type, std::string(8, '\0'));
    expect_refused(w, {"'k'", "type " + std::to_string(type), "0 to 12"});
    GgufWriter list;
    list.array("k", type, {std::string(8, '\0')});
    expect_refused(list, {"'k'", "type " + std::to_string(type)});
  }
  for (const uint32_t type : {42u, 255u, 0x80000000u, UINT32_MAX}) {
    GgufWriter w;
    w.tensor("x", {32}, type, std::string(128, '\0'));
    expect_refused(w, {"'x'", "type " + std::to_string(type)}, ErrorCode::kUnsupported);
  }
}

TEST(GgufFormat, NestedArraysAreRefused) {
  GgufWriter w;
  w.array("deep", 9, {encoded<uint32_t>(4) + encoded<uint64_t>(0)});
  expect_refused(w, {"'deep'", "array of arrays"}, ErrorCode::kUnsupported);
}

TEST(GgufFormat, AlignmentIsAPowerOfTwo) {
  for (const uint32_t alignment : {0u, 3u, 33u, 48u, UINT32_MAX}) {
    GgufWriter w;
    w.u32("general.alignment", alignment);
    expect_refused(w, {"general.alignment is " + std::to_string(alignment), "power of two"});
  }
  GgufWriter text;
  text.text("general.alignment", "32");
  expect_refused(text, {"'general.alignment'", "(string)", "u32"});
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufWriter w;
    w.alignment = alignment;
    w.u32("general.alignment", alignment).tensor("x", {4}, 24, "abcd");
    w.tensor("y", {1}, 24, "e");
    const Parsed p(w.build());
    EXPECT_EQ(p.contents.alignment, alignment);
    EXPECT_EQ(p.contents.data_offset % alignment, 0);
    EXPECT_EQ(static_cast<char>(p.storage[p.contents.tensors.find("y")->offset]), 'e');
  }
  GgufWriter beyond;  // the padding alone leaves the file
  beyond.u32("general.alignment", 1u << 31).tensor("x", {1}, 0, "abcd");
  expect_refused(beyond, {"'x'", "cut off"});
}

TEST(GgufFormat, DuplicatesAreRefused) {
  GgufWriter keys;
  keys.u32("one", 1).u32("two", 2).u32("one", 3);
  expect_refused(keys, {"key 'one'", "twice"});
  GgufWriter names;
  names.tensor("x", {1}, 0, "abcd").tensor("y", {1}, 0, "abcd").tensor("x", {1}, 0, "abcd");
  expect_refused(names, {"tensor 'x'", "twice"});
}

TEST(GgufFormat, NamesAreChecked) {
  GgufWriter empty_key;
  empty_key.u32("", 1);
  expect_refused(empty_key, {"metadata key", "empty"});
  GgufWriter long_key;
  long_key.u32(std::string(65536, 'k'), 1);
  expect_refused(long_key, {"65536", "65535"});
  GgufWriter empty_name;
  empty_name.tensor("", {1}, 0, "abcd");
  expect_refused(empty_name, {"tensor name", "empty"});
  GgufWriter odd;  // what a message shows of a name is fit for a terminal
  odd.tensor("a\n\x1b[31m\xff", {1}, 77, "abcd");
  expect_refused(odd, {"'a\\x0a\\x1b[31m\\xff'"}, ErrorCode::kUnsupported);
}

TEST(GgufFormat, BoolsAreZeroOrOne) {
  GgufWriter w;
  w.entry("flag", 7, encoded<uint8_t>(2));
  expect_refused(w, {"'flag'", "bool", "2"});
  GgufWriter list;
  list.array("flags", 7, {encoded<uint8_t>(1), encoded<uint8_t>(255)});
  expect_refused(list, {"'flags'", "255"});
}

TEST(GgufFormat, DimensionsAreBounded) {
  GgufWriter five;
  five.tensor("x", {1, 1, 1, 1, 1}, 0, "abcd");
  expect_refused(five, {"'x'", "5 dimensions", "at most 4"});
  std::string many = GgufWriter().build().substr(0, 8) + encoded<uint64_t>(1);
  many += encoded<uint64_t>(0) + encoded("x") + encoded(UINT32_MAX) + std::string(64, '\1');
  expect_error(ErrorCode::kMalformed, {"'x'", "4294967295 dimensions"},
               [&] { Parsed parsed(many); });
  GgufWriter negative;
  negative.tensor("x", {UINT64_MAX}, 0, "abcd");
  expect_refused(negative, {"'x'", "18446744073709551615", "2^63"});
}

TEST(GgufFormat, SizesThatOverflowAreRefused) {
  const uint64_t big = uint64_t{1} << 32;
  const std::vector<std::vector<uint64_t>> shapes = {
      {big, big},    {big, big, big, big},   {uint64_t{1} << 62, 4},
      {INT64_MAX},   {uint64_t{1} << 61, 8}, {INT64_MAX, INT64_MAX},
      {0, big, big}, {big, big, 0}};
  for (const auto& shape : shapes) {
    GgufWriter w;
    w.tensor("x", shape, 0, "abcd");
    expect_refused(w, {"'x'", "overflows"});
  }
  GgufWriter blocks;  // the count of elements fits, that of bytes does not
  blocks.tensor("x", {uint64_t{1} << 58, 32}, 8, "abcd");
  expect_refused(blocks, {"'x'", "overflows"});
}

TEST(GgufFormat, RowsAreWholeBlocks) {
  GgufWriter w;
  w.tensor("x", {32, 33}, 3, std::string(1000, 'a'));
  expect_refused(w, {"'x'", "33", "q4_1", "32"});
  GgufWriter rows;  // 64 elements in all would be two blocks; a row is half a one
  rows.tensor("x", {4, 16}, 8, std::string(68, 'a'));
  expect_refused(rows, {"'x'", "16", "q8_0"});
  GgufWriter k;
  k.tensor("x", {1, 128}, 12, std::string(144, 'a'));
  expect_refused(k, {"128", "q4_k", "256"});
  GgufWriter scalar;
  scalar.tensor("x", {}, 2, std::string(18, 'a'));
  expect_refused(scalar, {"'x'", "q4_0"});
}

TEST(GgufFormat, DataStaysInTheFile) {
  GgufWriter w;
  w.tensor("x", {9}, 0, std::string(32, 'a'));
  expect_refused(w, {"'x'", "36 bytes", "cut off"});
  for (const uint64_t offset : {uint64_t{32}, uint64_t{1} << 40, uint64_t{1} << 62}) {
    GgufWriter bad;
    bad.tensor("x", {8}, 0, std::string(32, 'a'), offset);
    expect_refused(bad, {"'x'", std::to_string(offset), "cut off"});
  }
  GgufWriter last;
  last.tensor("x", {8}, 0, std::string(32, 'a'), INT64_MAX - 31);
  expect_refused(last, {"'x'", "cut off"});
}

TEST(GgufFormat, OffsetsAreAligned) {
  for (const uint64_t offset : {uint64_t{1}, uint64_t{16}, uint64_t{33}, UINT64_MAX}) {
    GgufWriter w;
    w.tensor("x", {1}, 0, std::string(128, 'a'), offset);
    expect_refused(w, {"'x'", std::to_string(offset), "alignment 32"});
  }
}

TEST(GgufFormat, EveryTruncationIsRefused) {
  GgufWriter w = with_all_types();
  w.array("words", 8, {encoded("a"), encoded("bcd")}).array("ids", 4, {encoded<uint32_t>(7)});
  w.tensor("x", {2, 32}, 8, std::string(68, 'a')).tensor("y", {3}, 0, std::string(12, 'b'));
  const std::string whole = w.build();
  EXPECT_EQ(Parsed(whole).contents.tensors.records().size(), 2u);
  for (size_t size = 0; size < whole.size(); ++size) {
    expect_error(ErrorCode::kMalformed, {"m.gguf: "},
                 [&] { Parsed parsed(whole.substr(0, size)); });
    if (HasFailure()) FAIL() << "at size " << size;
  }
}

}  // namespace
}  // namespace braid
