#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "braid/io/tensor_table.h"

namespace braid {

// A safetensors file's contents before the tensor data.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;  // "__metadata__"
  TensorTable tensors;
};

constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Reads and checks the header of a whole safetensors file (format: the safetensors README) without
// touching the tensor data: 8 bytes of length, that much JSON, then the tensors back to back to the
// end of the file. `file` names it in messages. Fails with kMalformed where the bytes break the
// format. Memory stays within a small multiple of the header's size.
SafetensorsHeader parse_safetensors(const std::string& file, std::span<const std::byte> bytes);

}  // namespace braid
