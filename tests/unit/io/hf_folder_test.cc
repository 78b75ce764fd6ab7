#include "braid/io/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "braid/io/json_text.h"
#include "braid/io/model_file.h"
#include "unit/io/expect_error.h"
#include "unit/io/gguf_writer.h"
#include "unit/io/safetensors_writer.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using test::expect_error;
using test::GgufWriter;
using test::safetensors_bytes;
using test::TempFolder;
using ::testing::ElementsAre;

std::string weights() {
  return safetensors_bytes(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}      )",
                           "abcdefgh");
}

void write_model(const TempFolder& folder) {
  folder.write("config.json", R"({"model_type":"llama","hidden_size":64})");
  folder.write("model.safetensors", weights());
}

TEST(HfFolder, OpensWhatIsThere) {
  const TempFolder folder;
  write_model(folder);
  folder.write("generation_config.json", R"({"eos_token_id":[1,2]})");
  folder.write("tokenizer.json", "{}");
  const HfFolder model(folder.path());
  EXPECT_EQ(model.path(), folder.path());
  EXPECT_EQ(model.config().get<std::string>("model_type"), "llama");
  EXPECT_THAT(model.generation_config().get<std::vector<int64_t>>("eos_token_id"),
              ElementsAre(1, 2));
  EXPECT_EQ(model.weights().get("x").shape, Shape{2});
  EXPECT_EQ(model.file("tokenizer.json"), folder.path("tokenizer.json"));
  EXPECT_EQ(model.find_file("tokenizer_config.json"), std::nullopt);
  expect_error(ErrorCode::kNotFound, {folder.path(), "tokenizer_config.json"},
               [&] { model.file("tokenizer_config.json"); });
}

TEST(HfFolder, GenerationConfigMayBeAbsent) {
  const TempFolder folder;
  write_model(folder);
  const HfFolder model(folder.path() + "/");
  EXPECT_FALSE(model.generation_config().contains("eos_token_id"));
  EXPECT_EQ(model.generation_config().get_or<int64_t>("eos_token_id", 7), 7);
}

TEST(HfFolder, OpensShards) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model-1.safetensors", weights());
  folder.write("model.safetensors.index.json", R"({"weight_map":{"x":"model-1.safetensors"}})");
  EXPECT_EQ(HfFolder(folder.path()).weights().description(), "safetensors, 1 tensors in 1 files");
}

TEST(HfFolder, MissingPiecesAreNamed) {
  const TempFolder folder;
  const auto refused = [&](ErrorCode code, const std::vector<std::string>& parts) {
    expect_error(code, parts, [&] { HfFolder model(folder.path()); });
  };
  refused(ErrorCode::kNotFound, {folder.path(), "no config.json"});
  folder.write("some.gguf", "GGUF");
  refused(ErrorCode::kInvalidArgument, {"no config.json", "some.gguf"});
  folder.write("config.json", "{}");
  refused(ErrorCode::kNotFound, {folder.path(), "no model.safetensors"});
  folder.write("pytorch_model.bin", "x");
  refused(ErrorCode::kNotFound, {".bin", "convert"});
  folder.write("model.safetensors", weights().substr(0, 60));
  refused(ErrorCode::kMalformed, {"model.safetensors", "length"});
  folder.write("config.json", "");
  refused(ErrorCode::kInvalidArgument, {"config.json", "empty"});
  folder.write("config.json", "{\"a\":1,\"a\":2}");
  refused(ErrorCode::kMalformed, {"config.json", "'a'", "twice"});
}

TEST(JsonObject, TypedFields) {
  const JsonObject o("c.json", parse_json(R"({"b":true,"i":-3,"u":18446744073709551615,"d":0.5,
      "s":"text","l":[1,2],"w":["a","b"],"n":null,"o":{"f":8.0,"o":{}},"m":[1,"a"],"e":[]})",
                                          "c.json"));
  EXPECT_EQ(o.get<bool>("b"), true);
  EXPECT_EQ(o.get<int64_t>("i"), -3);
  EXPECT_EQ(o.get<double>("d"), 0.5);
  EXPECT_EQ(o.get<double>("i"), -3.0);
  EXPECT_EQ(o.get<std::string>("s"), "text");
  EXPECT_THAT(o.get<std::vector<int64_t>>("l"), ElementsAre(1, 2));
  EXPECT_THAT(o.get<std::vector<int64_t>>("i"), ElementsAre(-3));
  EXPECT_THAT(o.get<std::vector<std::string>>("w"), ElementsAre("a", "b"));
  EXPECT_THAT(o.get<std::vector<std::string>>("s"), ElementsAre("text"));
  EXPECT_THAT(o.get<std::vector<double>>("e"), ElementsAre());
  EXPECT_EQ(o.object("o")->get<double>("f"), 8.0);
  EXPECT_FALSE(o.object("n").has_value());
  EXPECT_FALSE(o.contains("n"));
  EXPECT_EQ(o.get_or<int64_t>("n", 9), 9);
  EXPECT_EQ(o.keys().size(), 11u);
}

TEST(JsonObject, WrongFieldsAreNamed) {
  const JsonObject o("c.json", parse_json(R"({"b":true,"u":18446744073709551615,"d":0.5,
      "s":"te\nxt","n":null,"o":{"f":8.0},"m":[1,"a"]})",
                                          "c.json"));
  const auto refused = [](const std::vector<std::string>& parts, const auto& run) {
    expect_error(ErrorCode::kMalformed, parts, run);
  };
  refused({"c.json", "'s'", "te\\nxt", "an integer"}, [&] { o.get<int64_t>("s"); });
  refused({"'u'", "18446744073709551615", "an integer"}, [&] { o.get<int64_t>("u"); });
  refused({"'d'", "0.5", "an integer"}, [&] { o.get<int64_t>("d"); });
  refused({"'b'", "a number"}, [&] { o.get<double>("b"); });
  refused({"'d'", "true or false"}, [&] { o.get<bool>("d"); });
  refused({"'m'", "array", "a list of integers"}, [&] { o.get<std::vector<int64_t>>("m"); });
  refused({"'o'", "object", "a string"}, [&] { o.get<std::string>("o"); });
  refused({"c.json: 's'", "JSON object"}, [&] { o.object("s"); });
  refused({"c.json: 'o'", "'f'", "8.0"}, [&] { o.object("o")->get<std::string>("f"); });
  expect_error(ErrorCode::kNotFound, {"c.json", "'n'", "a string"},
               [&] { o.get<std::string>("n"); });
}

TEST(JsonText, IsStrict) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& parts) {
    expect_error(ErrorCode::kMalformed, parts,
                 [&] { parse_json(text, "f", {.bytes = 2'000'000}); });
  };
  refused("", {"f: is no valid JSON"});
  refused("{\"a\":1e999}", {"no valid JSON"});
  refused("[NaN]", {"no valid JSON"});
  refused("{\"a\":\"\xff\"}", {"UTF-8"});
  refused("{\"a\":{\"b\":1,\"c\":{},\"b\":2}}", {"'b'", "twice"});
  refused(std::string("{}\0", 3), {"NUL byte at 2"});
  refused(std::string(1'000'000, '['), {"deeper than 64"});
  refused(std::string(2'000'001, ' '), {"2000001", "2000000"});
  std::string nested = "1";
  for (int i = 0; i < 64; ++i) nested = (i % 2 ? "[" + nested + "]" : "{\"a\":" + nested + "}");
  EXPECT_NO_THROW(parse_json(nested, "f"));
  refused("[" + nested + "]", {"deeper than 64"});
  EXPECT_NO_THROW(parse_json(R"([{"a":1},{"a":1},{"b":{"a":1}}])", "f"));
}

TEST(ModelFile, OpensBothForms) {
  const TempFolder folder;
  write_model(folder);
  GgufWriter w;
  w.tensor("x", {2}, 0, "abcdefgh");
  const std::string gguf = folder.write("odd name", w.build());
  const ModelFile a = open_model_file(folder.path());
  const ModelFile b = open_model_file(gguf);
  EXPECT_TRUE(std::holds_alternative<HfFolder>(a));
  EXPECT_TRUE(std::holds_alternative<GgufFile>(b));
  EXPECT_EQ(weights_of(a).names(), weights_of(b).names());
}

TEST(ModelFile, WhatIsNoModelIsRefused) {
  const TempFolder folder;
  const auto refused = [](ErrorCode code, const std::string& path,
                          const std::vector<std::string>& parts) {
    expect_error(code, parts, [&] { open_model_file(path); });
  };
  refused(ErrorCode::kNotFound, folder.path("none"), {folder.path("none"), "no such file"});
  refused(ErrorCode::kInvalidArgument, "", {"no model is named", ".gguf"});
  refused(ErrorCode::kNotFound, folder.path(), {"no config.json"});
  refused(ErrorCode::kInvalidArgument, folder.write("empty", ""), {"empty"});
  refused(ErrorCode::kInvalidArgument, folder.write("a.txt", "PL\3\4 and so on"),
          {"a.txt", "50 4c 03 04", ".gguf file", "config.json"});
  refused(ErrorCode::kInvalidArgument, folder.write("a.zip", "PK\3\4 and so on"),
          {"a.zip", "ZIP or PyTorch archive"});
  refused(ErrorCode::kInvalidArgument, folder.write("b", "G"), {"begins with 47;"});
  refused(ErrorCode::kInvalidArgument, folder.write("c.safetensors", weights()),
          {"c.safetensors", "name its folder"});
  refused(ErrorCode::kMalformed, folder.write("d.gguf", "GGUF"), {"d.gguf", "version"});
}

}  // namespace
}  // namespace braid
