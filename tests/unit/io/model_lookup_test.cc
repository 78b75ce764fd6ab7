// Models by name, in stores that the tests lay out as Hugging Face and ollama do.
#include "braid/io/model_lookup.h"

#include <gtest/gtest.h>

#include <map>

#include "unit/io/expect_error.h"
#include "unit/io/temp_folder.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

class ModelLookupTest : public testing::Test {
 protected:
  ModelLookupTest() {
    stores_ = model_stores([&](const char* name) -> const char* {
      const auto at = environment_.find(name);
      return at == environment_.end() ? nullptr : at->second.c_str();
    });
  }
  std::string file(const std::string& name, const std::string& content = "x") {
    fs::create_directories(fs::path(folder_.path(name)).parent_path());
    return folder_.write(name, content);
  }
  // As `hf download` leaves it.
  void repository(const std::string& id, const std::string& commit,
                  const std::vector<std::string>& names) {
    const std::string folder = "home/.cache/huggingface/hub/models--" + id;
    file(folder + "/refs/main", commit);
    for (const std::string& name : names) file(folder + "/snapshots/" + commit + "/" + name);
  }
  std::string find(const std::string& name) { return find_model(name, stores_); }
  std::string below(const std::string& name) { return folder_.path(name); }

  TempFolder folder_;
  std::map<std::string, std::string> environment_ = {{"HOME", folder_.path("home")}};
  ModelStores stores_;
};

TEST_F(ModelLookupTest, TheEnvironmentSaysWhereStoresAre) {
  const auto stores = [](std::map<std::string, std::string> environment) {
    return model_stores([&](const char* name) -> const char* {
      const auto at = environment.find(name);
      return at == environment.end() ? nullptr : at->second.c_str();
    });
  };
  EXPECT_EQ(stores({{"HOME", "/h"}}).braid, "/h/.cache/braid/models");
  EXPECT_EQ(stores({{"HOME", "/h"}}).hub, "/h/.cache/huggingface/hub");
  EXPECT_EQ(stores({{"HOME", "/h"}}).ollama[0], "/h/.ollama/models");
  EXPECT_EQ(stores({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}).braid, "/c/braid/models");
  EXPECT_EQ(stores({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}).hub, "/c/huggingface/hub");
  EXPECT_EQ(stores({{"HOME", "/h"}, {"HF_HOME", "/f"}}).hub, "/f/hub");
  EXPECT_EQ(stores({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/g"}}).hub, "/g");
  EXPECT_EQ(stores({{"OLLAMA_MODELS", "/o"}}).ollama, std::vector<fs::path>{"/o"});
  EXPECT_TRUE(stores({}).braid.empty());
  EXPECT_FALSE(stores({{"PATH", "/no/such"}}).hub_client);
  file("bin/hf");
  EXPECT_TRUE(stores({{"PATH", "/no/such:" + below("bin")}}).hub_client);
}

TEST_F(ModelLookupTest, APathIsItself) {
  const std::string path = file("any.gguf");
  EXPECT_EQ(find(path), path);
  EXPECT_EQ(find(""), "");
  expect_error(ErrorCode::kNotFound, {"/no/such.gguf: no such file"},
               [&] { find("/no/such.gguf"); });
}

TEST_F(ModelLookupTest, BraidsCacheByNameAndBeginning) {
  const std::string path = file("home/.cache/braid/models/smollm2-135m-instruct-q4_1.gguf");
  for (const char* name : {"smollm2-135m-instruct-q4_1.gguf", "smollm2-135m-instruct-q4_1",
                           "smollm2", "SmolLM2-135M"}) {
    EXPECT_EQ(find(name), path) << name;
  }
  EXPECT_EQ(demo_model(stores_), path);
  expect_error(ErrorCode::kNotFound, {"did you mean smollm2-135m-instruct-q4_1.gguf?"},
               [&] { find("smolm2-135m-instruct"); });
  file("home/.cache/braid/models/smollm2-360m.gguf");
  expect_error(ErrorCode::kInvalidArgument, {"several models"}, [&] { find("smollm2"); });
}

TEST_F(ModelLookupTest, HubSnapshotsByRevision) {
  repository("acme--tiny", "aaa111", {"config.json", "model.safetensors"});
  const std::string folder = below("home/.cache/huggingface/hub/models--acme--tiny");
  EXPECT_EQ(find("acme/tiny"), folder + "/snapshots/aaa111");
  EXPECT_EQ(find("https://huggingface.co/acme/tiny"), folder + "/snapshots/aaa111");
  EXPECT_EQ(find(folder), folder + "/snapshots/aaa111");
  file("home/.cache/huggingface/hub/models--acme--tiny/snapshots/bbb222/config.json");
  file("home/.cache/huggingface/hub/models--acme--tiny/refs/v2", "bbb222\n");
  EXPECT_EQ(find("acme/tiny@v2"), folder + "/snapshots/bbb222");
  EXPECT_EQ(find("acme/tiny@bbb"), folder + "/snapshots/bbb222");
  EXPECT_EQ(find("acme/tiny"), folder + "/snapshots/aaa111");
  expect_error(ErrorCode::kNotFound, {"revision 'v3' is not in " + folder + " (there: main, v2)"},
               [&] { find("acme/tiny@v3"); });
  expect_error(ErrorCode::kNotFound, {"did you mean acme/tiny?"}, [&] { find("acme/tinny"); });
  expect_error(ErrorCode::kNotFound, {"`hf download other/thing`"}, [&] { find("other/thing"); });
  expect_error(ErrorCode::kNotFound, {"no such file"}, [&] { find("acme/../../x"); });
}

TEST_F(ModelLookupTest, HubRepositoriesOfGgufFiles) {
  repository("acme--one-GGUF", "c1", {"one-Q4_K_M.gguf", "README.md", "mmproj-one.gguf"});
  const std::string hub = below("home/.cache/huggingface/hub/");
  EXPECT_EQ(find("acme/one-GGUF"), hub + "models--acme--one-GGUF/snapshots/c1/one-Q4_K_M.gguf");
  repository("acme--two-GGUF", "c2", {"two-Q4_K_M.gguf", "two-Q8_0.gguf", "config.json"});
  EXPECT_EQ(find("acme/two-GGUF:q8_0"), hub + "models--acme--two-GGUF/snapshots/c2/two-Q8_0.gguf");
  expect_error(ErrorCode::kInvalidArgument,
               {"has 2 GGUF files: add :NAME to say which (two-Q4_K_M.gguf, two-Q8_0.gguf)"},
               [&] { find("acme/two-GGUF"); });
  expect_error(ErrorCode::kNotFound, {"no GGUF file named"}, [&] { find("acme/two-GGUF:Q5_0"); });
  repository("acme--empty", "c3", {"README.md"});
  expect_error(ErrorCode::kNotFound, {"no config.json and no .gguf"}, [&] { find("acme/empty"); });
}

TEST_F(ModelLookupTest, OllamasManifests) {
  const std::string store = "home/.ollama/models/";
  file(store + "manifests/registry.ollama.ai/library/tiny/latest",
       R"({"layers": [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:1"},
                      {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:2"}]})");
  expect_error(ErrorCode::kNotFound, {"its model"}, [&] { find("tiny"); });
  const std::string blob = file(store + "blobs/sha256-2");
  EXPECT_EQ(find("tiny"), blob);
  EXPECT_EQ(find("tiny:latest"), blob);
  expect_error(ErrorCode::kNotFound, {"ollama's store"}, [&] { find("tiny:1b"); });
  file(
      store + "manifests/hf.co/acme/tiny/Q8_0",
      R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:2"}]})");
  EXPECT_EQ(find("hf.co/acme/tiny:Q8_0"), blob);
  for (const char* broken : {"", "[]", "{\"layers\": 3}", "\xff"}) {
    file(store + "manifests/registry.ollama.ai/library/broken/latest", broken);
    expect_error(ErrorCode::kMalformed, {"no manifest"}, [&] { find("broken"); });
  }
}

}  // namespace
}  // namespace braid::test
