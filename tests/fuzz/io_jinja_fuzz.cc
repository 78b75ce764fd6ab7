#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "braid/io/jinja/template.h"
#include "fuzz/driver/driver.h"

namespace {

using nlohmann::ordered_json;

const std::filesystem::path kFolder = std::filesystem::path(BRAID_TEST_DATA) / "golden/templates";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What the seeds' templates look at, so that mutants run far.
ordered_json variables() {
  ordered_json result = ordered_json::parse(read(kFolder / "snippets.json"))["variables"];
  const auto chats = ordered_json::parse(read(kFolder / "chats.json"));
  result.update(chats["tokens"]);
  result["messages"] = chats["messages"]["two calls, then asked"];
  result["tools"] = chats["tools"];
  result["add_generation_prompt"] = true;
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ordered_json kVariables = variables();
  const braid::jinja::Limits limits{
      .steps = 200'000, .heap_bytes = 16 << 20, .text_bytes = 4 << 20, .depth = 300};
  try {
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    braid::jinja::Template(source).render(kVariables, {.limits = limits, .now = std::tm{}});
  } catch (const braid::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".jinja") seeds.push_back(read(entry.path()));
  }
  for (const char* table : {"snippets.json", "random.json"}) {
    const auto data = ordered_json::parse(read(kFolder / table));
    for (const auto& item : data["cases"]) seeds.push_back(item[0]);
  }
  return seeds;
}
