#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "braid/io/safetensors_file.h"
#include "braid/io/safetensors_shards.h"
#include "unit/io/expect_error.h"
#include "unit/io/safetensors_writer.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using test::expect_error;
using test::safetensors_bytes;
using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::Pair;

struct Parsed {
  explicit Parsed(const std::string& bytes)
      : storage(reinterpret_cast<const std::byte*>(bytes.data()),
                reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size()),
        header(parse_safetensors("m.st", storage)) {}
  TensorView view(std::string_view name) const {
    return header.tensors.view(*header.tensors.find(name), storage);
  }
  std::vector<std::byte> storage;  // of exactly the file's size
  SafetensorsHeader header;
};

void expect_refused(const std::string& header, size_t data_bytes,
                    const std::vector<std::string>& parts) {
  std::vector<std::string> all = parts;
  all.emplace_back("m.st: ");
  expect_error(ErrorCode::kMalformed, all,
               [&] { Parsed p(safetensors_bytes(header, std::string(data_bytes, 'd'))); });
}

// A header with this one tensor in it.
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"x":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                     offsets);
}

// Pads a header to a multiple of 8 as writers do, so that the data are aligned.
std::string padded(std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string header = padded(R"({"__metadata__":{"format":"pt","a\"b":"c"},)"
                                    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                                    R"("a":{"shape":[2,2],"data_offsets":[0,16],"dtype":"F32"},)"
                                    R"("n":{"dtype":"I32","shape":[],"data_offsets":[24,28]},)"
                                    R"("h":{"dtype":"F16","shape":[1,1],"data_offsets":[22,24]}})");
  const float values[4] = {1, 2, 3, 4};
  std::string data(reinterpret_cast<const char*>(values), 16);
  data += "bbbbbbhhnnnn";
  const Parsed p(safetensors_bytes(header, data));
  EXPECT_THAT(p.header.metadata, ElementsAre(Pair("a\"b", "c"), Pair("format", "pt")));
  EXPECT_EQ(p.view("a").dtype, DType::f32);
  EXPECT_EQ(p.view("a").shape, (Shape{2, 2}));
  EXPECT_EQ(std::memcmp(p.view("a").data, values, 16), 0);
  EXPECT_EQ(p.view("b").dtype, DType::bf16);
  EXPECT_EQ(*p.view("b").as<char>(), 'b');
  EXPECT_EQ(p.view("h").dtype, DType::f16);
  EXPECT_EQ(*p.view("h").as<char>(), 'h');
  EXPECT_EQ(p.view("n").dtype, DType::i32);
  EXPECT_EQ(p.view("n").shape.rank(), 0);
  EXPECT_EQ(p.header.tensors.find("zz"), nullptr);
  EXPECT_EQ(p.header.tensors.records().front().name, "b");  // as listed
}

TEST(Safetensors, EmptyFilesAndTensors) {
  EXPECT_TRUE(Parsed(safetensors_bytes("{}")).header.tensors.records().empty());
  EXPECT_TRUE(Parsed(safetensors_bytes("{}   ")).header.tensors.records().empty());
  EXPECT_TRUE(Parsed(safetensors_bytes(R"({"__metadata__":{}})")).header.metadata.empty());
  const Parsed p(
      safetensors_bytes(padded(R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
                               R"("y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                               R"("w":{"dtype":"F16","shape":[5,0,7],"data_offsets":[0,0]}})"),
                        "dddd"));
  EXPECT_EQ(p.view("z").bytes(), 0);
  EXPECT_EQ(p.view("w").shape, (Shape{5, 0, 7}));
}

TEST(Safetensors, OtherTypesAreRefusedWhenAskedFor) {
  const std::string header = padded(R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
                                    R"("q":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[16,19]},)"
                                    R"("f":{"dtype":"F4","shape":[2],"data_offsets":[19,20]},)"
                                    R"("new":{"dtype":"F128","shape":[1],"data_offsets":[20,36]},)"
                                    R"("y":{"dtype":"F32","shape":[1],"data_offsets":[36,40]}})");
  const Parsed p(safetensors_bytes(header, std::string(40, 'd')));
  EXPECT_EQ(p.view("y").dtype, DType::f32);
  expect_error(ErrorCode::kUnsupported, {"m.st", "'x'", "'F64'", "F32, F16, BF16, I32 are"},
               [&] { p.view("x"); });
  expect_error(ErrorCode::kUnsupported, {"'q'", "'F8_E4M3'"}, [&] { p.view("q"); });
  expect_error(ErrorCode::kUnsupported, {"'f'", "'F4'"}, [&] { p.view("f"); });
  expect_error(ErrorCode::kUnsupported, {"'new'", "'F128'"}, [&] { p.view("new"); });
}

TEST(Safetensors, UnusableTensorsAreRefusedWhenAskedFor) {
  const Parsed six(safetensors_bytes(padded(one("\"F32\"", "[1,1,1,1,1,1]", "[0,4]")), "dddd"));
  expect_error(ErrorCode::kUnsupported, {"'x'", "6 dimensions", "5"}, [&] { six.view("x"); });
  const Parsed wide(safetensors_bytes(padded(one("\"F32\"", "[0,2147483648]", "[0,0]"))));
  expect_error(ErrorCode::kUnsupported, {"'x'", "2147483648"}, [&] { wide.view("x"); });
}

TEST(Safetensors, TheLengthIsChecked) {
  for (size_t size = 0; size < 8; ++size) {
    expect_error(ErrorCode::kMalformed, {"m.st", "length"},
                 [&] { Parsed p(std::string(size, '{')); });
  }
  std::string bytes = safetensors_bytes("{}");
  for (const uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 40,
                                uint64_t{1} << 63, UINT64_MAX - 7, UINT64_MAX}) {
    std::memcpy(bytes.data(), &length, 8);
    expect_error(ErrorCode::kMalformed, {"header length", std::to_string(length), "at most 2"},
                 [&] { Parsed p(bytes); });
  }
}

TEST(Safetensors, HeadersOver100MegabytesAreRefused) {
  // Sparse: the file is larger than the header that it claims.
  const TempFolder folder;
  std::string start = safetensors_bytes("{}");
  const uint64_t length = 100'000'001;
  std::memcpy(start.data(), &length, 8);
  const std::string path = folder.write("big", start);
  std::filesystem::resize_file(path, 200'000'000);
  expect_error(ErrorCode::kMalformed, {"100000001", "at most 100000000"},
               [&] { SafetensorsFile file(path); });
}

TEST(Safetensors, TheHeaderBeginsWithABrace) {
  expect_refused("", 0, {"begins with ''", "'{'"});
  expect_refused(" {}", 0, {"begins with ' '"});
  expect_refused("[]", 0, {"begins with '['"});
  expect_refused("\xef\xbb\xbf{}", 0, {"begins with"});
  expect_refused("\x80{}", 0, {"begins with '\\x80'"});
}

TEST(Safetensors, TheHeaderIsStrictJson) {
  for (const std::string_view bad :
       {"{", "{}}", "{} x", "{\"a\"}", "{\"a\":}", "{'a':1}", "{\"__metadata__\":{},}", "{//\n}",
        "{\"__metadata__\":{\"a\":\"\n\"}}", "{\"__metadata__\":{\"\\ud800\":\"a\"}}"}) {
    expect_refused(std::string(bad), 0, {"no valid JSON at byte"});
  }
  expect_refused(R"({"__metadata__":{"a":")"
                 "\xff"
                 R"("}})",
                 0, {"no valid JSON", "UTF-8"});
  expect_refused(R"({"__metadata__":{"a":")"
                 "\xc0\xaf"
                 R"("}})",
                 0, {"UTF-8"});
  expect_refused("{\"a\xed\xa0\x80\":{}}", 0, {"UTF-8"});
  expect_refused(std::string("{}\0", 3), 0, {"NUL byte at 2"});
  expect_refused(std::string("{}\0garbage", 10), 0, {"NUL byte"});
  expect_refused("{\"" + std::string(100'000, 'a'), 0, {"no valid JSON"});
}

TEST(Safetensors, DuplicateKeysAreRefused) {
  const std::string x = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string y = R"("y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  expect_refused("{" + x + "," + x + "}", 4, {"tensor 'x'", "twice"});
  expect_refused("{" + x + "," + y + "," + R"("\u0078")" + x.substr(3) + "}", 8, {"'x'", "twice"});
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, {"'__metadata__'", "twice"});
  expect_refused(R"({"__metadata__":{"a":"1","a":"2"}})", 0, {"'a'", "twice"});
  expect_refused(R"({"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
                 {"'x'", "dtype twice"});
  expect_refused(R"({"x":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4,
                 {"'x'", "shape twice"});
}

TEST(Safetensors, MetadataMapsStringsToStrings) {
  for (const std::string_view value : {"1", "-1", "1.5", "true", "null", "{}", "[]", "[\"a\"]"}) {
    expect_refused(fmt::format(R"({{"__metadata__":{{"k":{}}}}})", value), 0,
                   {"'__metadata__'", "'k'", "string"});
  }
  for (const std::string_view value : {"1", "\"a\"", "null", "[]"}) {
    expect_refused(fmt::format(R"({{"__metadata__":{}}})", value), 0, {"'__metadata__'", "object"});
  }
}

TEST(Safetensors, EntriesHaveTheirFields) {
  for (const std::string_view value : {"1", "-7", "2.5", "\"a\"", "null", "false", "[]"}) {
    expect_refused(fmt::format(R"({{"x":{}}})", value), 0, {"'x'", "an object"});
  }
  expect_refused(R"({"x":{}})", 0, {"'x'", "no dtype"});
  expect_refused(R"({"x":{"dtype":"F32","shape":[1]}})", 4, {"'x'", "no data_offsets"});
  expect_refused(R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"no shape"});
  expect_refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4,
                 {"'x'", "unknown field 'more'"});
  for (const std::string_view value : {"4", "null", "[]", "{}"}) {
    expect_refused(one(value, "[1]", "[0,4]"), 4, {"'x'", "dtype"});
  }
  for (const std::string_view value :
       {"1", "\"1\"", "null", "{}", "[[1]]", "[1.0]", "[1e3]", "[\"1\"]", "[null]", "[true]",
        "[{}]", "[-1]", "[-9223372036854775808]", "[1,[2]]"}) {
    expect_refused(one("\"F32\"", value, "[0,4]"), 4, {"'x'", "shape", "non-negative integers"});
  }
  for (const std::string_view value : {"0", "\"0\"", "null", "{}", "[0,-4]", "[-4,0]", "[0,4.0]",
                                       "[0,[4]]", "[[0,4]]", "[0,4,null]"}) {
    expect_refused(one("\"F32\"", "[1]", value), 4, {"'x'", "data_offsets"});
  }
  for (const std::string_view value : {"[]", "[0]", "[0,4,8]"}) {
    expect_refused(one("\"F32\"", "[1]", value), 4, {"'x'", "data_offsets has", "numbers"});
  }
}

TEST(Safetensors, DepthIsBounded) {
  const std::string deep(1'000'000, '[');
  expect_refused("{\"x\":" + deep, 0, {"'x'", "a list"});
  expect_refused(one("\"F32\"", deep, "[0,4]"), 4, {"'x'", "a list"});
  std::string objects;
  for (int i = 0; i < 1000; ++i) objects += "{\"a\":";
  expect_refused(objects, 0, {"'a'", "unknown field"});
}

TEST(Safetensors, NumbersAreInRange) {
  const std::string big = "9223372036854775808";
  expect_refused(one("\"F32\"", "[" + big + "]", "[0,4]"), 4, {"shape holds " + big, "2^63"});
  expect_refused(one("\"F32\"", "[1]", "[0," + big + "]"), 4, {"data_offsets holds " + big});
  for (const std::string_view value : {"99999999999999999999", "1e999", "NaN", "Infinity"}) {
    expect_refused(one("\"F32\"", fmt::format("[{}]", value), "[0,4]"), 4, {});
  }
  std::string ones = "[1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  expect_refused(one("\"F32\"", ones + "]", "[0,4]"), 4, {"'x'", "more than 64"});
}

TEST(Safetensors, LengthsFollowFromTheShape) {
  expect_refused(one("\"F32\"", "[2]", "[0,4]"), 4, {"'x'", "F32 [2]", "64 bits", "4 bytes"});
  expect_refused(one("\"F32\"", "[1]", "[0,8]"), 8, {"'x'", "8 bytes"});
  expect_refused(one("\"F32\"", "[0]", "[0,4]"), 4, {"'x'"});
  expect_refused(one("\"F32\"", "[]", "[0,0]"), 0, {"'x'"});
  expect_refused(one("\"BOOL\"", "[3]", "[0,4]"), 4, {"'x'"});
  expect_refused(one("\"F4\"", "[3]", "[0,2]"), 2, {"'x'", "12 bits"});
  for (const std::string_view shape :
       {"[4294967296,4294967296]", "[9223372036854775807]", "[4611686018427387904,4]",
        "[2305843009213693952,8]", "[0,4294967296,4294967296]", "[4294967296,4294967296,0]",
        "[1152921504606846976]"}) {
    expect_refused(one("\"F32\"", shape, "[0,0]"), 0, {"'x'", "overflows"});
  }
}

TEST(Safetensors, OffsetsAreOrderedAndContiguous) {
  expect_refused(one("\"F32\"", "[1]", "[4,0]"), 4, {"'x'", "[4, 0]", "backwards"});
  expect_refused(one("\"F32\"", "[1]", "[4,8]"), 8, {"'x'", "begins at byte 4", "0 is wanted"});
  expect_refused(one("\"F32\"", "[1]", "[0,4]"), 3, {"'x'", "[0, 4]", "3 bytes", "cut off"});
  expect_refused(one("\"F32\"", "[1]", "[0,4]"), 5, {"take 4 bytes", "holds 5"});
  expect_refused("{}", 1, {"take 0 bytes", "holds 1"});
  const auto two = [](std::string_view a, std::string_view b) {
    return fmt::format(R"({{"a":{{"dtype":"F32","shape":[1],"data_offsets":{}}},)"
                       R"("b":{{"dtype":"F32","shape":[1],"data_offsets":{}}}}})",
                       a, b);
  };
  expect_refused(two("[0,4]", "[0,4]"), 4, {"begins at byte 0", "4 is wanted"});
  expect_refused(two("[0,4]", "[2,6]"), 6, {"'b'", "begins at byte 2"});
  expect_refused(two("[0,4]", "[8,12]"), 12, {"'b'", "begins at byte 8"});
  expect_refused(two("[0,4]", "[4,8]"), 1000, {"take 8 bytes", "holds 1000"});
  expect_refused(two("[0,4]", "[9223372036854775803,9223372036854775807]"), 8, {"'b'"});
  EXPECT_EQ(
      Parsed(safetensors_bytes(two("[4,8]", "[0,4]"), "bbbbaaaa")).header.tensors.records().size(),
      2u);  // in any order of listing
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole =
      safetensors_bytes(padded(R"({"__metadata__":{"format":"pt"},)"
                               R"("x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                               R"("y":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})"),
                        std::string(14, 'd'));
  EXPECT_EQ(Parsed(whole).header.tensors.records().size(), 2u);
  for (size_t size = 0; size < whole.size(); ++size) {
    expect_error(ErrorCode::kMalformed, {"m.st: "}, [&] { Parsed p(whole.substr(0, size)); });
    if (HasFailure()) FAIL() << "at size " << size;
  }
}

TEST(Safetensors, FileIsAWeightSource) {
  const TempFolder folder;
  const SafetensorsFile file(folder.write(
      "a.safetensors", safetensors_bytes(padded(one("\"F32\"", "[1,2]", "[0,8]")), "abcdefgh")));
  const WeightSource& source = file;
  EXPECT_EQ(source.type("x", {1, 2}).bytes(), source.get("x").bytes());
  EXPECT_EQ(*source.get("x").as<char>(), 'a');
  EXPECT_EQ(source.find("y"), std::nullopt);
  EXPECT_THAT(source.names(), ElementsAre("x"));
  EXPECT_EQ(source.tensors().at(0).type, "F32");
  EXPECT_EQ(source.description(), "safetensors, 1 tensors");
}

constexpr std::string_view kIndex = "model.safetensors.index.json";

// A shard that holds one F32 tensor of this name, [n] elements of byte `fill`.
std::string shard(std::string_view name, int n, char fill) {
  return safetensors_bytes(
      padded(fmt::format(R"({{"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", name,
                         n, 4 * n)),
      std::string(static_cast<size_t>(4 * n), fill));
}

struct ShardedModel {
  ShardedModel() {
    folder.write("one.safetensors", shard("a", 2, 'a'));
    folder.write("two.safetensors", shard("b", 3, 'b'));
    write_index(R"({"metadata":{"total_size":20},"weight_map":)"
                R"({"b":"two.safetensors","a":"one.safetensors"}})");
  }
  void write_index(std::string_view text) const { folder.write(kIndex, text); }
  void expect_refused(ErrorCode code, const std::vector<std::string>& parts) const {
    expect_error(code, parts, [&] { SafetensorsShards shards(folder.path(kIndex)); });
  }
  TempFolder folder;
};

TEST(SafetensorsShards, FindsTensorsInTheirFiles) {
  const ShardedModel model;
  const SafetensorsShards shards(model.folder.path(kIndex));
  EXPECT_EQ(shards.num_files(), 2u);
  EXPECT_EQ(shards.get("a").shape, Shape{2});
  EXPECT_EQ(shards.type("b", {3}).dtype, shards.get("b").dtype);
  EXPECT_EQ(*shards.get("b").as<char>(), 'b');
  EXPECT_EQ(shards.find("c"), std::nullopt);
  EXPECT_THAT(shards.names(), ElementsAre("a", "b"));
  EXPECT_EQ(shards.tensors().at(1).bytes, 12);
  EXPECT_EQ(shards.description(), "safetensors, 2 tensors in 2 files");
}

TEST(SafetensorsShards, FilesOutsideTheFolderAreRefused) {
  const ShardedModel model;
  for (const std::string_view name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors",
                                      "..", ".", "", "a\\u0000b", "./one.safetensors"}) {
    model.write_index(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
    model.expect_refused(ErrorCode::kMalformed, {std::string(kIndex), "'a'", "same folder"});
  }
}

TEST(SafetensorsShards, MissingAndBrokenFilesAreRefused) {
  const ShardedModel model;
  model.write_index(R"({"weight_map":{"a":"three.safetensors"}})");
  model.expect_refused(ErrorCode::kNotFound, {"'a'", "three.safetensors", "missing"});
  model.write_index(R"({"weight_map":{"a":"two.safetensors"}})");
  model.expect_refused(ErrorCode::kMalformed, {"'a'", "two.safetensors"});
  model.write_index(R"({"weight_map":{"a":"one.safetensors"}})");
  model.folder.write("one.safetensors", shard("a", 2, 'a').substr(0, 70));
  model.expect_refused(ErrorCode::kMalformed, {"one.safetensors"});
  model.folder.write("one.safetensors", "");
  model.expect_refused(ErrorCode::kInvalidArgument, {"one.safetensors", "empty"});
  std::filesystem::remove(model.folder.path("one.safetensors"));
  std::filesystem::create_directory(model.folder.path("one.safetensors"));
  model.expect_refused(ErrorCode::kInvalidArgument, {"one.safetensors", "folder"});
}

TEST(SafetensorsShards, BrokenIndexesAreRefused) {
  const ShardedModel model;
  const auto refused = [&](std::string_view text, const std::vector<std::string>& parts) {
    model.write_index(text);
    model.expect_refused(ErrorCode::kMalformed, parts);
  };
  refused("[]", {std::string(kIndex), "JSON object"});
  refused("{", {std::string(kIndex), "no valid JSON"});
  refused("{}", {"'weight_map'"});
  refused(R"({"weight_map":[]})", {"'weight_map'", "JSON object"});
  refused(R"({"weight_map":{}})", {"'weight_map'", "empty"});
  refused(R"({"weight_map":{"a":1}})", {"'a'", "1", "string"});
  refused(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", {"'a'", "twice"});
  refused(R"({"weight_map":)" + std::string(100'000, '['), {"deeper than"});
  refused("{\"weight_map\":{}}" + std::string("\0", 1), {"NUL"});
}

}  // namespace
}  // namespace braid
