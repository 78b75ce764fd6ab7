#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "braid/io/gguf_file.h"
#include "unit/io/expect_error.h"
#include "unit/io/gguf_parsed.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using test::encoded;
using test::expect_error;
using test::GgufWriter;
using test::TempFolder;
using ::testing::ElementsAre;
using Parsed = test::ParsedGguf;

struct TypeCase {
  uint32_t id;
  DType dtype;
  uint64_t cols;
};

TEST(GgufTensors, EverySupportedType) {
  const std::vector<TypeCase> cases = {
      {0, DType::f32, 3},     {1, DType::f16, 5},     {2, DType::q4_0, 64}, {3, DType::q4_1, 96},
      {6, DType::q5_0, 32},   {7, DType::q5_1, 64},   {8, DType::q8_0, 32}, {12, DType::q4_k, 512},
      {13, DType::q5_k, 256}, {14, DType::q6_k, 256}, {30, DType::bf16, 7}, {26, DType::i32, 9}};
  GgufWriter w;
  for (const TypeCase& c : cases) {
    const auto bytes = static_cast<size_t>(2 * bytes_of(c.dtype, static_cast<int64_t>(c.cols)));
    w.tensor(name(c.dtype), {2, c.cols}, c.id, std::string(bytes, static_cast<char>(c.id + 1)));
  }
  const Parsed p(w.build());
  for (const TypeCase& c : cases) {
    const TensorView view = p.view(name(c.dtype));
    EXPECT_EQ(view.dtype, c.dtype);
    EXPECT_EQ(view.shape, (Shape{2, static_cast<int64_t>(c.cols)}));
    EXPECT_TRUE(view.contiguous());
    for (int64_t i = 0; i < view.bytes(); ++i) {
      ASSERT_EQ(std::to_integer<uint32_t>(view.data[i]), c.id + 1) << name(c.dtype) << " " << i;
    }
  }
}

TEST(GgufTensors, ShapesAreOutermostFirst) {
  GgufWriter w;
  w.tensor("x", {4, 3, 2}, 0, std::string(96, 'a')).tensor("one", {1}, 0, std::string(4, 'b'));
  w.tensor("scalar", {}, 0, std::string(4, 'c'));
  const Parsed p(w.build());
  EXPECT_EQ(p.view("x").shape, (Shape{4, 3, 2}));
  EXPECT_EQ(p.view("one").shape, Shape{1});
  EXPECT_EQ(p.view("scalar").shape, Shape{});
  EXPECT_EQ(*p.view("scalar").as<char>(), 'c');
  EXPECT_EQ(p.contents.tensors.find("y"), nullptr);
}

TEST(GgufTensors, EmptyTensors) {
  GgufWriter w;
  w.tensor("x", {0, 32}, 2, "").tensor("y", {4, 0}, 0, "").tensor("z", {1}, 0, "abcd");
  const Parsed p(w.build());
  EXPECT_EQ(p.view("x").bytes(), 0);
  EXPECT_EQ(p.view("y").shape, (Shape{4, 0}));
}

TEST(GgufTensors, OverlapIsAllowed) {
  GgufWriter w;
  w.tensor("x", {8}, 0, std::string(32, 'a')).tensor("y", {8}, 0, "", 0);
  const Parsed p(w.build());
  EXPECT_EQ(p.view("x").data, p.view("y").data);
}

TEST(GgufTensors, OtherTypesAreRefusedWhenAskedFor) {
  GgufWriter w;
  w.tensor("odd", {2, 256}, 10, std::string(2 * 84, 'x')).tensor("fine", {1}, 0, "abcd");
  const Parsed p(w.build());
  EXPECT_EQ(p.view("fine").dtype, DType::f32);
  EXPECT_EQ(p.contents.tensors.find("odd")->type, "q2_k");
  expect_error(ErrorCode::kUnsupported, {"m.gguf", "'odd'", "'q2_k'"}, [&] { p.view("odd"); });
}

TEST(GgufTensors, UnusableTensorsAreRefusedWhenAskedFor) {
  GgufWriter w;
  w.tensor("huge", {0, 1ull << 32}, 0, "").tensor("x", {1}, 0, "abcd");
  expect_error(ErrorCode::kUnsupported, {"'huge'", "[0, 4294967296]", "2147483647"},
               [&] { Parsed(w.build()).view("huge"); });
}

TEST(GgufTensors, OddAddressesAreRead) {
  const TempFolder folder;
  GgufWriter packed;
  packed.alignment = 1;
  packed.u32("general.alignment", 1);
  packed.tensor("a", {3}, 24, "abc").tensor("b", {1}, 0, "abcd").tensor("c", {1}, 0, "efgh");
  packed.tensor("d", {1}, 24, "a").tensor("e", {1}, 0, "ijkl").tensor("f", {2}, 24, "ab");
  GgufFile file(folder.write("m.gguf", packed.build()));
  int copied = 0;
  for (const auto& [name, text] : {std::pair("b", "abcd"), {"c", "efgh"}, {"e", "ijkl"}}) {
    copied += file.contents().tensors.find(name)->offset % 4 != 0;
    const TensorView view = file.get(name);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 4, 0u);
    EXPECT_EQ(std::memcmp(view.data, text, 4), 0) << name;
  }
  EXPECT_GE(copied, 1);
  const TensorView before = file.get("b");
  const GgufFile moved(std::move(file));
  EXPECT_EQ(std::memcmp(before.data, "abcd", 4), 0) << "lost when the file moved";
  EXPECT_EQ(moved.get("b").data, before.data);
}

TEST(GgufTensors, TypesThatAreNotReadAreNamed) {
  const std::string readable =
      "is not supported, f32, f16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, i32, bf16 are";
  for (const auto& [id, name] : {std::pair(23u, "iq4_xs"), {15u, "q8_k"}, {31u, "q4_0_4_4"}}) {
    const GgufTensorType& type = *gguf_tensor_type(id);
    const auto elems = static_cast<uint64_t>(type.block_elems);
    GgufWriter w;
    w.tensor("x", {1, elems}, id, std::string(static_cast<size_t>(type.block_bytes), 'x'));
    const Parsed parsed(w.build());
    expect_error(ErrorCode::kUnsupported, {"'x'", fmt::format("type '{}' {}", name, readable)},
                 [&] { parsed.view("x"); });
  }
}

TEST(GgufFile, ReadsThroughTheMapping) {
  const TempFolder folder;
  GgufWriter w;
  w.u32("n", 5).tensor("x", {2, 2}, 0, encoded(1.f) + encoded(2.f) + encoded(3.f) + encoded(4.f));
  GgufFile opened(folder.write("a.gguf", w.build()));
  const TensorView before = opened.get("x");
  const GgufFile moved = std::move(opened);
  const WeightSource& source = moved;
  EXPECT_EQ(source.type("x", {2, 2}).shape, (Shape{2, 2}));
  const TensorView view = source.get("x");
  EXPECT_EQ(view.data, before.data);
  EXPECT_EQ(view.row_as<float>(1)[0], 3.f);
  EXPECT_EQ(moved.metadata().get<uint32_t>("n"), 5u);
  EXPECT_THAT(source.names(), ElementsAre("x"));
  EXPECT_EQ(source.path(), folder.path("a.gguf"));
  EXPECT_EQ(source.description(), "GGUF v3, 1 tensors");
  EXPECT_EQ(source.tensors().at(0).bytes, 16);
  EXPECT_EQ(source.find("z"), std::nullopt);
  expect_error(ErrorCode::kNotFound, {"a.gguf", "'z'"}, [&] { source.get("z"); });
  expect_error(ErrorCode::kMalformed, {"'x'", "[2, 2]", "[4]"}, [&] { source.type("x", {4}); });
}

TEST(GgufFile, APieceOfASplitModelIsRefused) {
  const TempFolder folder;
  GgufWriter w;
  w.entry("split.count", 2, encoded<uint16_t>(3));
  const std::string path = folder.write("a.gguf", w.build());
  expect_error(ErrorCode::kUnsupported, {path, "3 pieces"}, [&] { GgufFile file(path); });
}

// Resident bytes of the mapping of `path` in this process.
int64_t resident_bytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  int64_t kib = 0;
  bool inside = false;
  while (std::getline(maps, line)) {
    if (line.find(':') > line.find(' ')) inside = line.ends_with(path);
    if (inside && line.starts_with("Rss:")) kib += std::stoll(line.substr(4));
  }
  return kib * 1024;
}

TEST(GgufFile, OpeningDoesNotTouchTheWeights) {
  const TempFolder folder;
  GgufWriter w;
  w.tensor("x", {1 << 12, 1 << 12}, 0, std::string(size_t{64} << 20, 'x'));
  const std::string path = folder.write("big.gguf", w.build());
  const GgufFile file(path);
  const TensorView view = file.get("x");
  EXPECT_LT(resident_bytes(path), 8 << 20);  // one fault may map pages around it
  int64_t sum = 0;
  for (int64_t i = 0; i < view.bytes(); i += 4096) sum += std::to_integer<int>(view.data[i]);
  EXPECT_GT(sum, 0);
  EXPECT_GT(resident_bytes(path), 32 << 20);  // the measure sees what is touched
  advise({view.data, static_cast<size_t>(view.bytes())}, Advice::kDontNeed);
  EXPECT_LT(resident_bytes(path), 8 << 20);
}

// BRAID_TEST_MODEL names the demo model, SmolLM2-135M-Instruct in Q4_1.
TEST(GgufFile, DemoModel) {
  const char* path = std::getenv("BRAID_TEST_MODEL");
  if (path == nullptr || *path == 0) GTEST_SKIP() << "BRAID_TEST_MODEL is not set";
  const GgufFile file(path);
  const GgufMetadata& m = file.metadata();
  EXPECT_EQ(m.get<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(m.get<int64_t>("llama.block_count"), 30);
  EXPECT_EQ(m.get<int64_t>("llama.attention.head_count"), 9);
  EXPECT_EQ(m.get<float>("llama.rope.freq_base"), 100000.f);
  const auto tokens = m.get<std::vector<std::string_view>>("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 49152u);
  EXPECT_EQ(tokens[2], "<|im_end|>");
  EXPECT_EQ(file.tensors().size(), 272u);
  EXPECT_EQ(file.type("token_embd.weight", {49152, 576}).dtype, DType::q8_0);
  EXPECT_EQ(file.type("blk.29.ffn_down.weight", {576, 1536}).dtype, DType::q4_1);
  EXPECT_EQ(file.find("output.weight"), std::nullopt);
  for (int i = 0; i < 576; ++i) {
    const float weight = file.get("output_norm.weight").as<float>()[i];
    ASSERT_TRUE(std::isfinite(weight) && std::abs(weight) < 100) << i << " " << weight;
  }
}

}  // namespace
}  // namespace braid
