#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/gguf_parser.h"
#include "unit/io/gguf_writer.h"

namespace braid::test {

// The parsed bytes lie in memory of exactly their size, so that a read past them is seen by
// AddressSanitizer.
struct ParsedGguf {
  explicit ParsedGguf(const std::string& bytes)
      : storage(reinterpret_cast<const std::byte*>(bytes.data()),
                reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size()),
        contents(parse_gguf("m.gguf", storage)) {}
  const GgufMetadata& metadata() const { return contents.metadata; }
  TensorView view(std::string_view name) const {
    return contents.tensors.view(*contents.tensors.find(name), storage);
  }
  std::vector<std::byte> storage;
  GgufContents contents;
};

inline GgufWriter with_all_types() {
  GgufWriter w;
  w.entry("u8", 0, encoded<uint8_t>(200)).entry("i8", 1, encoded<int8_t>(-100));
  w.entry("u16", 2, encoded<uint16_t>(60000)).entry("i16", 3, encoded<int16_t>(-30000));
  w.entry("u32", 4, encoded<uint32_t>(4000000000u)).entry("i32", 5, encoded<int32_t>(-2000000000));
  w.entry("f32", 6, encoded<float>(0.5f)).entry("bool", 7, encoded<uint8_t>(1));
  w.entry("string", 8, encoded("ein Wort")).entry("u64", 10, encoded<uint64_t>(UINT64_MAX));
  w.entry("i64", 11, encoded<int64_t>(INT64_MIN)).entry("f64", 12, encoded<double>(0.1));
  return w;
}

}  // namespace braid::test
