// Any config.json and any GGUF metadata: a configuration whose numbers can be computed with, or one
// error of Braid's.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "braid/io/foreign_file.h"
#include "braid/model/config_keys.h"
#include "braid/model/family.h"
#include "braid/ops/rope.h"
#include "fuzz/driver/driver.h"
#include "unit/io/gguf_writer.h"

namespace {

using namespace braid;
using nlohmann::json;
using test::encoded;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const ModelConfig& c) {
  require(std::ssize(c.windows) == c.layers && c.Hq % c.Hkv == 0);
  require(c.latent || c.D % 8 == 0);
  for (const int64_t window : c.windows) require(window >= 0);
  require(std::isfinite(c.rope.attention_factor));
  for (const double frequency : ops::rope_frequencies(c.rope, nullptr)) {
    require(std::isfinite(frequency));
  }
}

const std::vector<json>& values() {
  static const std::vector<json> kValues = {nullptr,
                                            true,
                                            false,
                                            0,
                                            1,
                                            2,
                                            3,
                                            4,
                                            8,
                                            16,
                                            64,
                                            512,
                                            -1,
                                            INT64_MAX,
                                            0.5,
                                            1.0,
                                            4.0,
                                            1e300,
                                            1e-300,
                                            -2.5,
                                            "yarn",
                                            "linear",
                                            "llama3",
                                            "dynamic",
                                            "default",
                                            "longrope",
                                            "none",
                                            "silu",
                                            "gelu",
                                            "",
                                            json::object(),
                                            json::array(),
                                            json::array({4, 4}),
                                            json::array({4, 2}),
                                            json::array({"full_attention", "sliding_attention"}),
                                            json{{"quant_method", "awq"}}};
  return kValues;
}

// Two bytes make one key: which, and its value.
json keys_from(const KeyTable& table, const std::vector<std::string>& more, const uint8_t* data,
               size_t size) {
  json out = json::object();
  for (size_t i = 0; i + 1 < size; i += 2) {
    const size_t at = data[i] % (table.keys.size() + more.size());
    const std::string key =
        at < more.size() ? more[at] : std::string(table.keys[at - more.size()].name);
    out[key] = values()[data[i + 1] % values().size()];
  }
  return out;
}

void read_hf(const json& keys) {
  const JsonObject config("config.json", keys);
  for (const ModelFamily* family : model_families()) {
    try {
      check(family->hf_config(config));
    } catch (const Error&) {
    }
  }
  try {
    family_of(config, "config.json");
  } catch (const Error&) {
  }
}

void add(test::GgufWriter& w, const std::string& key, const json& value) {
  if (value.is_string()) w.text(key, value.get<std::string>());
  if (value.is_boolean()) w.entry(key, 7, encoded<uint8_t>(value.get<bool>()));
  if (value.is_number_integer()) w.entry(key, 11, encoded(value.get<int64_t>()));
  if (value.is_number_float()) w.entry(key, 6, encoded(value.get<float>()));
  if (!value.is_array()) return;
  std::vector<std::string> elements;
  for (const json& x : value) {
    if (x.is_number_integer()) elements.push_back(encoded(x.get<int32_t>()));
  }
  w.array(key, 5, elements);
}

void read_gguf(std::string_view architecture, const json& keys) {
  test::GgufWriter w;
  w.text("general.architecture", architecture);
  for (const auto& [key, value] : keys.items()) {
    add(w, std::string(architecture) + "." + key, value);
  }
  w.tensor("token_embd.weight", {4, 8}, 0, std::string(4 * 8 * 4, '\0'));
  const std::string bytes = w.build();
  const int file = ::memfd_create("fuzz.gguf", 0);
  require(file >= 0 && ::write(file, bytes.data(), bytes.size()) == std::ssize(bytes));
  try {
    const ModelFile model = GgufFile("/proc/self/fd/" + std::to_string(file));
    check(family_of(model).gguf_config(std::get<GgufFile>(model)));
  } catch (const Error&) {
  }
  ::close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (const auto what = foreign_file(std::as_bytes(std::span(data, size)))) require(!what->empty());
  if (size < 2) return 0;
  const size_t half = 1 + data[0] % (size - 1);
  json config = keys_from(hf_keys(), {"model_type", "architectures"}, data + 1, half - 1);
  const json rope = keys_from(hf_rope_keys(), {"rope_type", "type"}, data + half, size - half);
  if (data[0] & 1) config["rope_scaling"] = rope;
  if (data[0] & 2) config["rope_parameters"] = rope;
  // Half of the runs are of a model that is right but for the keys.
  json small = {{"hidden_size", 64},
                {"num_attention_heads", 4},
                {"num_hidden_layers", 2},
                {"num_key_value_heads", 2},
                {"head_dim", 16}};
  small.update(config);
  read_hf(data[0] & 4 ? small : config);
  json gguf = {{"block_count", 2},          {"context_length", 64},
               {"embedding_length", 64},    {"feed_forward_length", 8},
               {"attention.head_count", 4}, {"attention.layer_norm_rms_epsilon", 1e-5}};
  gguf.update(keys_from(gguf_keys(), {}, data + 1, size - 1));
  read_gguf(gguf_keys().columns[data[0] / 8 % gguf_keys().columns.size()], gguf);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string all(1, '\7');
  for (int key = 0; key < 64; ++key) {
    all += static_cast<char>(key);
    all += static_cast<char>(key * 7);
  }
  return {all, std::string("\6\0\x14\1\x15", 5), "version https://git-lfs.github.com/spec/v1",
          "<!DOCTYPE html>"};
}
