#include "golden/support/golden.h"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "golden/support/level_golden.h"

namespace braid::golden {
namespace {

using nlohmann::json;

std::array<int, 256> base64_values() {
  std::array<int, 256> values;
  values.fill(-1);
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < digits.size(); ++i) {
    values[static_cast<unsigned char>(digits[i])] = static_cast<int>(i);
  }
  return values;
}

// Little-endian f32 in base64.
std::vector<float> decode_floats(const std::string& text) {
  static const std::array<int, 256> kValues = base64_values();
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (unsigned char digit : text) {
    if (digit == '=') break;
    BRAID_CHECK(kValues[digit] >= 0, "base64 digit {}", static_cast<int>(digit));
    bits = bits << 6 | static_cast<uint32_t>(kValues[digit]);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 255);
    }
  }
  BRAID_CHECK(bytes.size() % sizeof(float) == 0, "{} bytes", bytes.size());
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::filesystem::path golden_folder() {
  return std::filesystem::path(BRAID_TEST_DATA) / "golden";
}

json read_json(const std::filesystem::path& name) {
  std::ifstream file(golden_folder() / name);
  BRAID_CHECK(file.good(), "{}", name.string());
  return json::parse(file);
}

// Columns of the logits that Case::inner holds: each `step`-th.
std::vector<int64_t> every_column(const Case& c, int64_t step) {
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < std::ssize(c.last); i += step) columns.push_back(i);
  return columns;
}

Case parse_case(const json& data) {
  return {.prompt = data.at("prompt"),
          .last = decode_floats(data.at("last")),
          .inner_positions = data.at("inner_positions"),
          .inner = decode_floats(data.at("inner")),
          .greedy = data.at("greedy"),
          .greedy_logits = data.at("greedy_logits"),
          .gaps = data.at("gaps")};
}

}  // namespace

Golden load_golden(const std::string& model, const std::string& form) {
  const json data = read_json(std::filesystem::path("models") / model / "golden.json");
  Golden golden;
  golden.vocab = data.at("vocab");
  golden.f32_noise = data.at("f32_noise");
  const int64_t step = data.at("column_step");
  for (int64_t i = 0; i < golden.vocab; i += step) golden.columns.push_back(i);
  // f32 rounds nothing: it stands there only where GGUF says less than config.json.
  const bool exact = form == "exact" || (form == "f32" && !data.contains("f32"));
  const json& found = data.at(exact ? "exact" : form);
  if (!exact) golden.format_error = found.at("format_error");
  for (const json& entry : exact ? found : found.at("cases")) {
    golden.cases.push_back(parse_case(entry));
  }
  return golden;
}

std::vector<ConfigCase> load_config_cases() {
  std::vector<ConfigCase> cases;
  for (const json& entry : read_json("configs.json")) {
    ConfigCase& c = cases.emplace_back();
    c.config = entry.at("config").dump();
    c.seed = entry.at("seed");
    for (const json& spec : entry.at("tensors")) {
      c.tensors.push_back({spec[0], spec[1], spec[2], spec[3]});
    }
    c.prompt = entry.at("prompt").get<std::vector<int32_t>>();
    c.last = decode_floats(entry.at("last"));
  }
  return cases;
}

DualChunkGolden load_dual_chunk_golden() {
  const json data = read_json("dual_chunk.json");
  DualChunkGolden golden{.model = data.at("model"), .columns = {}, .cases = {}};
  for (const json& entry : data.at("cases")) {
    golden.cases.push_back({.config = entry.at("dual_chunk_attention_config").dump(),
                            .logits = {.prompt = entry.at("prompt"),
                                       .last = decode_floats(entry.at("last")),
                                       .inner_positions = entry.at("inner_positions"),
                                       .inner = decode_floats(entry.at("inner"))}});
  }
  golden.columns = every_column(golden.cases.at(0).logits, data.at("column_step"));
  return golden;
}

namespace {

LevelGolden level_golden_of(const json& data) {
  LevelGolden golden{
      .model = data.at("model"), .more_layers = data.at("more_layers"), .columns = {}, .cases = {}};
  for (json entry : data.at("cases")) {
    Case logits{.prompt = entry.at("prompt"),
                .last = decode_floats(entry.at("last")),
                .inner_positions = entry.at("inner_positions"),
                .inner = decode_floats(entry.at("inner"))};
    for (const char* key : {"prompt", "last", "inner_positions", "inner"}) entry.erase(key);
    golden.cases.push_back({.options = std::move(entry), .logits = std::move(logits)});
  }
  golden.columns = every_column(golden.cases.at(0).logits, data.at("column_step"));
  return golden;
}

}  // namespace

LevelGolden load_level_golden() {
  return level_golden_of(read_json("levels.json"));
}

std::vector<LevelGolden> load_eager_level_goldens() {
  std::vector<LevelGolden> goldens;
  for (const json& data : read_json("levels_eager.json")) goldens.push_back(level_golden_of(data));
  return goldens;
}

void LevelGolden::write(const std::filesystem::path& folder) const {
  RandomModel random = load_random_model(model);
  json config = json::parse(std::ifstream(random.folder / "config.json"));
  const int layers = config.at("num_hidden_layers");
  const std::vector<TensorSpec> own = random.tensors;
  for (int layer = layers; layer < layers + more_layers; ++layer) {
    for (TensorSpec spec : own) {
      const std::string first = "model.layers.1.";
      if (!spec.name.starts_with(first)) continue;
      spec.name.replace(0, first.size(), "model.layers." + std::to_string(layer) + ".");
      random.tensors.push_back(std::move(spec));
    }
  }
  write_hf_folder(random, folder);
  config["num_hidden_layers"] = layers + more_layers;
  std::ofstream(folder / "config.json") << config;
}

DemoGolden load_demo_golden() {
  const json prompts = read_json("demo_prompts.json");
  const json data = read_json("demo_golden.json");
  DemoGolden golden;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const json& found = data.at("prompts").at(i);
    golden.cases.push_back({.text = prompts[i].at("text"),
                            .ids = prompts[i].at("ids"),
                            .greedy = found.at("greedy"),
                            .gaps = found.at("gaps"),
                            .top_ids = found.at("top_ids"),
                            .top_logits = found.at("top_logits"),
                            .log_sum_exp = found.at("log_sum_exp")});
  }
  const json& text = data.at("text");
  std::ifstream file(golden_folder() / "demo_text.txt");
  golden.text.text.assign(std::istreambuf_iterator<char>(file), {});
  golden.text.ids = text.at("ids");
  golden.text.ctx = text.at("ctx");
  for (const json& chunk : text.at("nll")) golden.text.nll.push_back(decode_floats(chunk));
  golden.text.chunk_perplexity = text.at("chunk_perplexity").get<std::vector<double>>();
  golden.text.perplexity = text.at("perplexity");
  return golden;
}

double relative_distance(const std::vector<float>& x, const std::vector<float>& y) {
  BRAID_CHECK(x.size() == y.size(), "{} and {} values", x.size(), y.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double delta = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    difference += delta * delta;
    size += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  return std::sqrt(difference / size);
}

}  // namespace braid::golden
