#include "braid/io/safetensors_writer.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"

namespace braid {

std::string safetensors_bytes(std::span<const NamedTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t end = 0;
  for (const NamedTensor& tensor : tensors) {
    size_t elems = 1;
    for (int64_t dim : tensor.shape) elems *= static_cast<size_t>(dim);
    BRAID_CHECK(elems == tensor.values.size() && !header.contains(tensor.name),
                "tensor '{}' has {} values", tensor.name, tensor.values.size());
    const size_t begin = end;
    end += elems * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((8 - (text.size() % 8)) % 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += text;
  for (const NamedTensor& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()),
                 tensor.values.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace braid
