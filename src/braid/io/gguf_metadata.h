#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/gguf_types.h"
#include "braid/io/name_index.h"

namespace braid {

// A metadata value, left encoded in the file: a scalar or an array of `count` elements, already
// checked to lie inside the file.
struct GgufValue {
  GgufType type = GgufType::u8;  // the element's type in an array
  bool is_array = false;
  int64_t count = 1;
  const std::byte* data = nullptr;
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

std::string type_name(const GgufValue& value);  // "u32", "array of 49152 string"
// The value for people: strings in quotes and cut, arrays to their first elements.
std::string preview(const GgufValue& value, size_t limit = 60);

// A GGUF file's metadata. Nothing is decoded before it is asked for; strings are views into the
// mapped file and live as long as the GgufFile.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  // Fails with kMalformed where a key occurs twice.
  GgufMetadata(std::string file, std::vector<GgufEntry> entries);

  const std::vector<GgufEntry>& entries() const { return entries_; }  // in the file's order
  bool contains(std::string_view key) const { return value(key) != nullptr; }
  const GgufValue* value(std::string_view key) const;

  // T is bool, int32_t, uint32_t, int64_t, uint64_t, float, double, std::string_view or a
  // std::vector of these. An integer is read from any integer type with a value in range of T, a
  // float from f32 or f64. All three fail with kMalformed (file, key, value, type wanted) if the
  // key holds another value; get() fails with kNotFound without the key.
  template <class T>
  std::optional<T> find(std::string_view key) const;
  template <class T>
  T get(std::string_view key) const;
  template <class T>
  T get_or(std::string_view key, T otherwise) const {
    auto value = find<T>(key);
    return value ? *std::move(value) : std::move(otherwise);
  }

 private:
  std::string file_;
  std::vector<GgufEntry> entries_;
  NameIndex index_;
};

}  // namespace braid
