#include <algorithm>
#include <cstring>
#include <fstream>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "golden/support/block_quantizer.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

using nlohmann::json;

constexpr int64_t kAlignment = 32;

// GGUF's numbers for value and tensor types.
enum ValueType : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

uint32_t ggml_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q4_1:
      return 3;
    case DType::q5_0:
      return 6;
    case DType::q5_1:
      return 7;
    case DType::q8_0:
      return 8;
    case DType::q4_k:
      return 12;
    case DType::q5_k:
      return 13;
    case DType::q6_k:
      return 14;
    case DType::bf16:
      return 30;
    case DType::i32:
      return 26;
  }
  BRAID_CHECK(false, "{}", name(dtype));
}

class Bytes {
 public:
  template <class T>
  void put(T value) {
    const auto* raw = reinterpret_cast<const char*>(&value);
    data_.append(raw, sizeof(value));
  }
  void put_text(const std::string& text) {
    put<uint64_t>(text.size());
    data_ += text;
  }
  void put_raw(const std::vector<std::byte>& bytes) {
    data_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void pad() { data_.resize(static_cast<size_t>(round_up(std::ssize(data_), kAlignment)), '\0'); }
  const std::string& data() const { return data_; }

 private:
  std::string data_;
};

// The vocabulary of models/tokenizer, padded to `size`, and GGUF's type of each token.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
};

Tokens read_tokens(const std::filesystem::path& tokenizer, size_t size) {
  constexpr int32_t kNormal = 1, kControl = 3, kUnused = 5;
  std::ifstream file(tokenizer);
  const json data = json::parse(file);
  Tokens tokens;
  tokens.texts.resize(size);
  tokens.types.assign(size, kUnused);
  for (size_t i = 0; i < size; ++i) tokens.texts[i] = fmt::format("[PAD{}]", i);
  for (const auto& token : data.at("model").at("vocab").items()) {
    const size_t id = token.value();
    tokens.texts.at(id) = token.key();
    tokens.types.at(id) = kNormal;
  }
  for (const json& token : data.at("added_tokens")) tokens.types.at(token.at("id")) = kControl;
  tokens.merges = data.at("model").at("merges").get<std::vector<std::string>>();
  return tokens;
}

void put_array(const std::vector<std::string>& values, Bytes* out) {
  out->put<uint32_t>(kArray);
  out->put<uint32_t>(kString);
  out->put<uint64_t>(values.size());
  for (const std::string& value : values) out->put_text(value);
}

void put_array(const std::vector<int32_t>& values, Bytes* out) {
  out->put<uint32_t>(kArray);
  out->put<uint32_t>(kI32);
  out->put<uint64_t>(values.size());
  for (int32_t value : values) out->put(value);
}

void put_key(const json& entry, const json& form, const Tokens& tokens, Bytes* out) {
  out->put_text(entry[0]);
  const std::string type = entry[1];
  const json& value = entry[2];
  if (type == "string") {
    out->put<uint32_t>(kString);
    out->put_text(value);
  } else if (type == "u32" || type == "file_type") {
    out->put<uint32_t>(kU32);
    out->put<uint32_t>(type == "u32" ? value : form.at("file_type"));
  } else if (type == "f32") {
    out->put<uint32_t>(kF32);
    out->put(static_cast<float>(value.get<double>()));
  } else if (type == "bool") {
    out->put<uint32_t>(kBool);
    out->put<uint8_t>(value.get<bool>());
  } else if (type == "i32s") {
    put_array(value.get<std::vector<int32_t>>(), out);
  } else if (value == "tokens") {
    put_array(tokens.texts, out);
  } else if (value == "token_types") {
    put_array(tokens.types, out);
  } else if (value == "merges") {
    put_array(tokens.merges, out);
  } else {
    fail(ErrorCode::kMalformed, "gguf.json: key of type {}", type);
  }
}

// Row h*D + p*D/2 + i goes to h*D + 2*i + p: halves to pairs in each head. x is [rows, cols].
std::vector<float> permute_heads(const std::vector<float>& x, int64_t rows, int64_t heads) {
  const int64_t cols = std::ssize(x) / rows, half = rows / heads / 2;
  std::vector<float> y(x.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / (2 * half), part = row / half % 2, i = row % half;
    const int64_t target = head * 2 * half + 2 * i + part;
    std::copy_n(x.begin() + row * cols, cols, y.begin() + target * cols);
  }
  return y;
}

// Of x [rows, cols] some rows of each head's part, each head's transposed or not.
std::vector<float> head_rows(const std::vector<float>& x, const json& entry, int64_t rows,
                             int64_t cols) {
  const int64_t heads = entry["heads"], begin = entry["rows"][0], end = entry["rows"][1];
  const int64_t n = end - begin;
  std::vector<float> y;
  for (int64_t h = 0; h < heads; ++h) {
    const float* part = x.data() + (h * (rows / heads) + begin) * cols;
    for (int64_t i = 0; i < n * cols; ++i) {
      y.push_back(entry["transposed"] ? part[i % n * cols + i / n] : part[i]);
    }
  }
  return y;
}

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;
};

// Vectors and routers stay f32; the form "mixed" goes by the middle part of the name
// (blk.0.attn_q.weight).
DType format_of(const std::string& name, size_t dims, const std::string& form, const json& data) {
  if (dims == 1 || name.find(".ffn_gate_inp.") != std::string::npos) return DType::f32;
  std::string format = form;
  if (data.contains("formats")) {
    const size_t last = name.rfind('.');
    const size_t before = name.rfind('.', last - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    format = data.at("formats").at(name.substr(begin, last - begin));
  }
  return parse_dtype(format).value();
}

GgufTensor make_tensor(const RandomModel& model, const json& entry, const std::string& form) {
  GgufTensor tensor{.name = entry.at("name")};
  std::vector<float> values;
  if (entry.contains("values")) {
    values = entry.at("values").get<std::vector<float>>();
    tensor.shape = {std::ssize(values)};
  } else {
    // Tensors that become one have a dimension more.
    const json sources = entry.contains("sources") ? entry["sources"] : json{entry["source"]};
    for (const json& source : sources) {
      const auto spec = std::find_if(
          model.tensors.begin(), model.tensors.end(),
          [&](const TensorSpec& s) { return s.name == source.get_ref<const std::string&>(); });
      BRAID_CHECK(spec != model.tensors.end(), "{}", tensor.name);
      tensor.shape = spec->shape;
      const std::vector<float> part = model.values(*spec);
      values.insert(values.end(), part.begin(), part.end());
    }
    if (entry.contains("sources")) tensor.shape.insert(tensor.shape.begin(), std::ssize(sources));
    if (entry.contains("rows")) {
      values = head_rows(values, entry, tensor.shape[0], tensor.shape[1]);
      const int64_t heads = entry["heads"], rows = std::ssize(values) / heads / tensor.shape[1];
      tensor.shape = entry["transposed"] ? std::vector<int64_t>{heads, tensor.shape[1], rows}
                                         : std::vector<int64_t>{heads, rows, tensor.shape[1]};
    }
    if (entry.contains("flat")) tensor.shape.erase(tensor.shape.begin());
    if (entry.contains("permute_heads")) {
      values = permute_heads(values, tensor.shape[0], entry.at("permute_heads"));
    }
  }
  tensor.dtype = entry.contains("format")
                     ? parse_dtype(entry["format"].get<std::string>()).value()
                     : format_of(tensor.name, tensor.shape.size(), form, model.gguf["forms"][form]);
  tensor.bytes = quantize_blocks(tensor.dtype, values);
  return tensor;
}

}  // namespace

void write_gguf(const RandomModel& model, const std::string& form,
                const std::filesystem::path& path) {
  const json& keys = model.gguf.at("keys");
  std::vector<GgufTensor> tensors;
  for (const json& entry : model.gguf.at("tensors")) {
    tensors.push_back(make_tensor(model, entry, form));
  }
  const auto vocab = static_cast<size_t>(model.tensors.front().shape[0]);
  const Tokens tokens =
      read_tokens(model.folder.parent_path() / "tokenizer" / "tokenizer.json", vocab);

  Bytes out;
  out.put<uint32_t>(0x46554747);  // "GGUF"
  out.put<uint32_t>(3);
  out.put<uint64_t>(tensors.size());
  out.put<uint64_t>(keys.size());
  for (const json& entry : keys) put_key(entry, model.gguf["forms"][form], tokens, &out);
  int64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    out.put_text(tensor.name);
    out.put<uint32_t>(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) out.put<int64_t>(tensor.shape[i]);
    out.put(ggml_type(tensor.dtype));
    out.put<int64_t>(offset);
    offset += round_up(std::ssize(tensor.bytes), kAlignment);
  }
  out.pad();
  for (const GgufTensor& tensor : tensors) {
    out.put_raw(tensor.bytes);
    out.pad();
  }
  std::ofstream file(path, std::ios::binary);
  file.write(out.data().data(), std::ssize(out.data()));
  BRAID_CHECK(file.flush().good(), "writing {}", path.string());
}

}  // namespace braid::golden
