// A diffusers folder: which class a component has, where its weights are, and what is missing.
#include "braid/io/diffusers_folder.h"

#include <gtest/gtest.h>

#include "braid/io/safetensors_file.h"
#include "braid/io/safetensors_writer.h"
#include "unit/io/expect_error.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using test::expect_error;
using test::TempFolder;

// A pipeline with a component "vae" that has no files yet.
struct Pipeline : TempFolder {
  Pipeline() {
    write("model_index.json",
          R"({"_class_name":"FluxPipeline","vae":["diffusers","AutoencoderKL"],)"
          R"("image_encoder":[null,null],"odd":["diffusers"],"number":["diffusers",3]})");
    std::filesystem::create_directory(path("vae"));
  }
  // Each file holds a single value, different from the others', as its mark.
  void weights(const std::string& file, float value) const {
    const NamedTensor tensor{"x", {1}, {value}};
    write("vae/" + file, safetensors_bytes({&tensor, 1}));
  }
};

float value_of(const DiffusersFolder& folder, std::string_view variant = "") {
  return folder.weights("vae", variant)->get("x").as<const float>()[0];
}

TEST(DiffusersFolder, NamesClasses) {
  const Pipeline p;
  const DiffusersFolder folder(p.path());
  EXPECT_EQ(folder.pipeline(), "FluxPipeline");
  EXPECT_EQ(folder.find_class("vae"), "AutoencoderKL");
  EXPECT_EQ(folder.find_class("image_encoder"), std::nullopt);
  EXPECT_EQ(folder.find_class("safety_checker"), std::nullopt);
  folder.require_class("vae", "AutoencoderKL");
  expect_error(ErrorCode::kUnsupported, {"'vae'", "AutoencoderKL", "AutoencoderTiny"},
               [&] { folder.require_class("vae", "AutoencoderTiny"); });
  expect_error(ErrorCode::kNotFound, {"'image_encoder'", "X"},
               [&] { folder.require_class("image_encoder", "X"); });
  expect_error(ErrorCode::kMalformed, {"'odd'", "[library, class]"},
               [&] { folder.find_class("odd"); });
  expect_error(ErrorCode::kMalformed, {"'number'", "3"}, [&] { folder.find_class("number"); });
}

TEST(DiffusersFolder, RefusesWhatIsNoPipeline) {
  const TempFolder folder;
  expect_error(ErrorCode::kNotFound, {"model_index.json"},
               [&] { DiffusersFolder refused(folder.path()); });
  expect_error(ErrorCode::kNotFound, {"no such folder"},
               [&] { DiffusersFolder refused(folder.path("none")); });
  const std::string file = folder.write("flux.safetensors", "x");
  expect_error(ErrorCode::kInvalidArgument, {"flux.safetensors: is a file"},
               [&] { DiffusersFolder refused(file); });
  folder.write("model_index.json", R"({"vae":["diffusers","AutoencoderKL"]})");
  expect_error(ErrorCode::kNotFound, {"_class_name"},
               [&] { DiffusersFolder refused(folder.path()); });
}

TEST(DiffusersFolder, ChoosesVariants) {
  const Pipeline p;
  const DiffusersFolder folder(p.path());
  expect_error(ErrorCode::kNotFound, {"has no weights", "diffusion_pytorch_model.safetensors"},
               [&] { folder.weights("vae"); });
  expect_error(ErrorCode::kNotFound, {"no folder 'unet'", "-m takes"},
               [&] { folder.weights("unet"); });
  p.weights("diffusion_pytorch_model.fp16.safetensors", 16);
  EXPECT_EQ(value_of(folder), 16) << "the only ones";
  p.weights("diffusion_pytorch_model.bf16.safetensors", 17);
  expect_error(ErrorCode::kNotFound, {"--variant", "bf16, fp16"}, [&] { folder.weights("vae"); });
  p.weights("diffusion_pytorch_model.safetensors", 32);
  EXPECT_EQ(value_of(folder), 32);
  EXPECT_EQ(value_of(folder, "fp16"), 16);
  expect_error(ErrorCode::kNotFound, {"'int8'", "without --variant", "bf16, fp16"},
               [&] { folder.weights("vae", "int8"); });
}

TEST(DiffusersFolder, OpensShards) {
  const Pipeline p;
  p.weights("model-1.safetensors", 4);
  p.write("vae/model.safetensors.index.json", R"({"weight_map":{"x":"model-1.safetensors"}})");
  EXPECT_EQ(value_of(DiffusersFolder(p.path())), 4);
  p.weights("model.fp16-1.safetensors", 5);
  p.write("vae/model.safetensors.index.fp16.json",
          R"({"weight_map":{"x":"model.fp16-1.safetensors"}})");
  EXPECT_EQ(value_of(DiffusersFolder(p.path()), "fp16"), 5);
}

TEST(DiffusersFolder, OpensShardsOfTheOnlyVariant) {
  const Pipeline p;
  p.weights("model.fp16-00001-of-00001.safetensors", 6);
  p.write("vae/model.safetensors.index.fp16.json",
          R"({"weight_map":{"x":"model.fp16-00001-of-00001.safetensors"}})");
  EXPECT_EQ(value_of(DiffusersFolder(p.path())), 6);
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempFolder folder;
  const std::vector<NamedTensor> tensors = {
      {"a", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"none", {0, 4}, {}}, {"\"b\"", {1}, {-0.5f}}};
  const SafetensorsFile file(folder.write("x.safetensors", safetensors_bytes(tensors)));
  EXPECT_EQ(file.get("a").shape, (Shape{2, 3}));
  EXPECT_EQ(file.get("a").as<const float>()[5], 6);
  EXPECT_EQ(file.get("\"b\"").as<const float>()[0], -0.5f);
  EXPECT_EQ(file.get("none").shape, (Shape{0, 4}));
}

}  // namespace
}  // namespace braid
