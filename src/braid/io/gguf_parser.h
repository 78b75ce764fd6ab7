#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "braid/io/gguf_metadata.h"
#include "braid/io/tensor_table.h"

namespace braid {

// A GGUF file's contents before the tensor data. Keys and values point into the parsed bytes.
struct GgufContents {
  uint32_t version = 0;
  int64_t alignment = 32;
  int64_t data_offset = 0;  // begin of the tensor data, from the start of the file
  GgufMetadata metadata;
  TensorTable tensors;
};

// True where the bytes begin as a GGUF file does.
bool is_gguf(std::span<const std::byte> bytes);

// Reads and checks a whole GGUF file, version 2 or 3 (format: ggml/docs/gguf.md), without touching
// the tensor data. `file` names it in messages. Fails with kMalformed where the bytes contradict
// the format or each other, with kUnsupported for other versions, byte orders, tensor types and
// nested arrays. Memory stays within a small multiple of the metadata's size, whatever its counts
// say.
GgufContents parse_gguf(const std::string& file, std::span<const std::byte> bytes);

}  // namespace braid
