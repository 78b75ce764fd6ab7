#include "golden/support/random_model.h"

#include <algorithm>
#include <fstream>

#include "braid/base/error.h"
#include "braid/tensor/quant.h"
#include "golden/support/block_quantizer.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path models_folder() {
  return fs::path(BRAID_TEST_DATA) / "golden" / "models";
}

json read_json(const fs::path& path) {
  std::ifstream file(path);
  BRAID_CHECK(file.good(), "{}", path.string());
  return json::parse(file);
}

Checksum checksum_from(const json& entry) {
  return {entry.at("bytes").get<uint64_t>(),
          std::stoull(entry.at("fnv1a64").get<std::string>(), nullptr, 16)};
}

const char* safetensors_name(DType dtype) {
  return dtype == DType::f32 ? "F32" : dtype == DType::f16 ? "F16" : "BF16";
}

// As PyPI safetensors writes a file of one dtype: tensors by name, the header padded to 8 bytes.
void write_safetensors(const fs::path& path, const RandomModel& model,
                       std::vector<TensorSpec> specs) {
  std::sort(specs.begin(), specs.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::vector<std::byte> data;
  for (const TensorSpec& spec : specs) {
    std::vector<float> values = random_tensor(model.seed, spec);
    if (model.edit) model.edit(spec, values);
    const auto bytes = quantize_blocks(model.dtype, values);
    const size_t begin = data.size();
    data.insert(data.end(), bytes.begin(), bytes.end());
    header[spec.name] = {{"dtype", safetensors_name(model.dtype)},
                         {"shape", spec.shape},
                         {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  BRAID_CHECK(file.flush().good(), "writing {}", path.string());
}

}  // namespace

std::vector<float> RandomModel::values(const TensorSpec& spec) const {
  const auto bytes = quantize_blocks(dtype, random_tensor(seed, spec));
  std::vector<float> rounded(static_cast<size_t>(spec.elems()));
  dequantize_row(dtype, bytes.data(), rounded.data(), spec.elems());
  return rounded;
}

std::vector<std::string> RandomModel::gguf_forms() const {
  std::vector<std::string> names;
  for (const auto& form : gguf.at("forms").items()) names.push_back(form.key());
  return names;
}

Checksum RandomModel::gguf_checksum(const std::string& form) const {
  return checksum_from(gguf.at("forms").at(form));
}

std::vector<std::string> random_model_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(models_folder())) {
    if (fs::exists(entry.path() / "weights.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> random_models_without(const std::vector<std::string>& keys) {
  std::vector<std::string> names = random_model_names();
  std::erase_if(names, [&](const std::string& name) {
    const json config = read_json(models_folder() / name / "config.json");
    return std::ranges::any_of(keys, [&](const std::string& key) { return config.contains(key); });
  });
  return names;
}

RandomModel load_random_model(const std::string& name) {
  RandomModel model{.name = name, .folder = models_folder() / name};
  const json weights = read_json(model.folder / "weights.json");
  model.seed = weights.at("seed");
  model.dtype = parse_dtype(weights.at("dtype").get<std::string>()).value();
  for (const json& entry : weights.at("tensors")) {
    model.tensors.push_back({entry[0], entry[1], entry[2], entry[3]});
  }
  for (const auto& file : weights.at("files").items()) {
    model.files[file.key()] = checksum_from(file.value());
  }
  model.gguf = read_json(model.folder / "gguf.json");
  return model;
}

void write_hf_folder(const RandomModel& model, const fs::path& folder) {
  fs::create_directories(folder);
  const auto overwrite = fs::copy_options::overwrite_existing;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(models_folder() / "tokenizer" / name, folder / name, overwrite);
  }
  for (const char* name :
       {"config.json", "generation_config.json", "model.safetensors.index.json"}) {
    if (fs::exists(model.folder / name)) {
      fs::copy_file(model.folder / name, folder / name, overwrite);
    }
  }
  const size_t shards = model.files.size();
  auto next = model.tensors.begin();
  for (size_t i = 0; const auto& [name, checksum] : model.files) {
    const size_t count = model.tensors.size() / shards + (i++ < model.tensors.size() % shards);
    write_safetensors(folder / name, model, {next, next + static_cast<int64_t>(count)});
    next += static_cast<int64_t>(count);
  }
}

Checksum checksum_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  return {bytes.size(), fnv1a64(std::as_bytes(std::span(bytes)))};
}

void verify_checksum(const fs::path& path, const Checksum& expected) {
  const Checksum seen = checksum_of(path);
  if (seen.bytes != expected.bytes || seen.fnv1a64 != expected.fnv1a64) {
    fail(ErrorCode::kMalformed,
         "{}: {} bytes with FNV-1a {:016x}, but the script wrote {}, {:016x}", path.string(),
         seen.bytes, seen.fnv1a64, expected.bytes, expected.fnv1a64);
  }
}

}  // namespace braid::golden
