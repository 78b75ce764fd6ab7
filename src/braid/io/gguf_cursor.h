#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "braid/base/error.h"
#include "braid/io/gguf_types.h"

namespace braid {

// Reads a GGUF file's little-endian bytes from front to back; nothing is read, and nothing is
// allocated, before it is known to lie in the file. Every refusal names the file, the field and the
// place.
class GgufCursor {
 public:
  // `file` and `bytes` outlive the cursor.
  GgufCursor(std::string_view file, std::span<const std::byte> bytes)
      : file_(file), bytes_(bytes) {}

  std::string_view file() const { return file_; }
  int64_t offset() const { return offset_; }
  int64_t remaining() const { return static_cast<int64_t>(bytes_.size()) - offset_; }

  // Names the part being read, for messages: set_field("value of", key) reads "value of 'key'".
  void set_field(std::string_view what, std::string_view name = {});

  template <class T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  // Not copied: points into the file's bytes.
  std::string_view read_string();
  // A count of things with at least `each` bytes; all must fit into the file's rest.
  int64_t read_count(int64_t each);
  GgufType read_type();
  // Checks a value of this type, moves past it, and returns its first byte.
  const std::byte* skip(GgufType type);
  const std::byte* skip_array(GgufType element, int64_t count);

  // Fails with kMalformed: "FILE: FIELD WHAT".
  template <class... Args>
  [[noreturn]] void malformed(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kMalformed, "{}: {} {}", file_, field(),
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const std::byte* take(int64_t length);
  std::string field() const;

  std::string_view file_;
  std::span<const std::byte> bytes_;
  int64_t offset_ = 0;
  std::string_view what_;
  std::string_view name_;
};

}  // namespace braid
