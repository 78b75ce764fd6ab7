// Random configurations (tools/walk_configs.py) against transformers, and heads and files in the
// forms in which people have them.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kF32Tolerance = 1e-5;  // relative

std::vector<float> last_logits(const Model& model, const std::vector<int32_t>& prompt) {
  Runner runner(model, {.cache = {.pages = kPages,
                                  .page_size = kPageSize,
                                  .pages_per_sequence = kPages,
                                  .kv_dtype = DType::f32}});
  return prompt_logits(runner, prompt, 512).back();
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(RandomConfigs, GiveTheLogitsOfTransformers) {
  const Folder folder("configs");
  const std::vector<ConfigCase> cases = load_config_cases();
  ASSERT_GE(cases.size(), 16u);
  for (const ConfigCase& c : cases) {
    SCOPED_TRACE(c.config);
    fs::create_directories(folder.path() / "spec");
    write(folder.path() / "spec" / "config.json", c.config);
    write_hf_folder({.name = "config",
                     .folder = folder.path() / "spec",
                     .seed = c.seed,
                     .tensors = c.tensors,
                     .files = {{"model.safetensors", {}}}},
                    folder.path() / "model");
    const Model model((folder.path() / "model").string());
    EXPECT_LT(relative_distance(last_logits(model, c.prompt), c.last), kF32Tolerance);
  }
}

class Heads : public testing::Test {
 protected:
  void write_model(const std::string& name) {
    fs::remove_all(folder_.path());
    write_hf_folder(load_random_model(name), folder_.path());
    golden_ = load_golden(name);
  }
  void edit(const std::string& name, const std::function<std::string(std::string)>& change) const {
    write(folder_.path() / name, change(read(folder_.path() / name)));
  }
  void expect_golden(const Model& model) const {
    const Case& c = golden_.cases.back();
    EXPECT_LT(relative_distance(last_logits(model, c.prompt), c.last), kF32Tolerance);
  }

  const Folder folder_{"heads"};
  Golden golden_;
};

// The names of tensors in a safetensors header, whose length stays.
std::string renamed(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find("\"" + from + "\":");
  BRAID_CHECK(at != std::string::npos && from.size() >= to.size(), "{}", from);
  return bytes.replace(at, from.size() + 3,
                       "\"" + to + "\":" + std::string(from.size() - to.size(), ' '));
}

TEST_F(Heads, ATiedModelMayHoldItsHeadAlone) {
  write_model("smollm2");
  edit("model.safetensors", [](std::string bytes) {
    return renamed(std::move(bytes), "model.embed_tokens.weight", "lm_head.weight");
  });
  const Model model(folder_.path().string());
  EXPECT_TRUE(model.config().tied_head);
  EXPECT_TRUE(model.config().remarks.empty());
  expect_golden(model);
}

TEST_F(Heads, AStoredHeadIsUsedWhateverTheFlagSays) {
  write_model("qwen2_untied");
  edit("config.json", [](const std::string& text) {
    json config = json::parse(text);
    config["tie_word_embeddings"] = true;
    return config.dump();
  });
  const Model model(folder_.path().string());
  EXPECT_FALSE(model.config().tied_head);
  ASSERT_EQ(model.config().remarks.size(), 1u);
  EXPECT_NE(model.config().remarks[0].find("'lm_head.weight' is stored beside"), std::string::npos);
  expect_golden(model);
}

TEST_F(Heads, ACopyOfTheEmbeddingIsNoRemark) {
  write_model("qwen2_untied");
  edit("model.safetensors", [](std::string bytes) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    const json header = json::parse(bytes.substr(8, length));
    const auto at = [&](const char* name) { return header.at(name).at("data_offsets"); };
    const size_t head = at("lm_head.weight")[0], embedding = at("model.embed_tokens.weight")[0];
    const size_t size = at("lm_head.weight")[1].get<size_t>() - head;
    return bytes.replace(8 + length + head, size, bytes.substr(8 + length + embedding, size));
  });
  edit("config.json", [](const std::string& text) {
    json config = json::parse(text);
    config["tie_word_embeddings"] = true;
    return config.dump();
  });
  EXPECT_TRUE(Model(folder_.path().string()).config().remarks.empty());
}

TEST_F(Heads, AnUntiedModelNeedsBothTensors) {
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    write_model("qwen2_untied");
    edit("model.safetensors",
         [&](std::string bytes) { return renamed(std::move(bytes), name, "x"); });
    EXPECT_THROW(Model(folder_.path().string()), Error) << name;
  }
}

// Weights that begin at any byte of the file.
TEST_F(Heads, HeadersWithoutPadding) {
  for (const char* name : {"llama2_mha", "llama3_gqa"}) {
    for (size_t pad = 0; pad < 4; ++pad) {
      SCOPED_TRACE(fmt::format("{} {}", name, pad));
      write_model(name);
      for (const auto& file : load_random_model(name).files) {
        edit(file.first, [&](const std::string& bytes) {
          uint64_t length = 0;
          std::memcpy(&length, bytes.data(), sizeof(length));
          std::string header = bytes.substr(8, length);
          header.resize(header.find_last_not_of(' ') + 1 + pad, ' ');
          const uint64_t size = header.size();
          return std::string(reinterpret_cast<const char*>(&size), 8) + header +
                 bytes.substr(8 + length);
        });
      }
      expect_golden(Model(folder_.path().string()));
    }
  }
}

}  // namespace
}  // namespace braid::golden
