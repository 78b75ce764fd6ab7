#include "braid/io/gguf_cursor.h"

#include <bit>

#include "braid/io/quoted.h"

namespace braid {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

void GgufCursor::set_field(std::string_view what, std::string_view name) {
  what_ = what;
  name_ = name;
}

std::string GgufCursor::field() const {
  return name_.data() == nullptr ? std::string(what_) : fmt::format("{} {}", what_, quoted(name_));
}

const std::byte* GgufCursor::take(int64_t length) {
  if (length > remaining()) {
    malformed("is cut off: {} bytes at offset {}, the file has {}", length, offset_, bytes_.size());
  }
  const std::byte* at = bytes_.data() + offset_;
  offset_ += length;
  return at;
}

std::string_view GgufCursor::read_string() {
  const int64_t length = read_count(1);
  return {reinterpret_cast<const char*>(take(length)), static_cast<size_t>(length)};
}

int64_t GgufCursor::read_count(int64_t each) {
  const auto count = read<uint64_t>();
  const int64_t limit = remaining() / each;
  if (count > static_cast<uint64_t>(limit)) {
    malformed("has length {}, at most {} fit into the {} bytes left of the file", count, limit,
              remaining());
  }
  return static_cast<int64_t>(count);
}

GgufType GgufCursor::read_type() {
  const auto type = read<uint32_t>();
  if (type >= kNumGgufTypes) {
    malformed("has type {}, known types are 0 to {}", type, kNumGgufTypes - 1);
  }
  return static_cast<GgufType>(type);
}

const std::byte* GgufCursor::skip(GgufType type) {
  return skip_array(type, 1);
}

const std::byte* GgufCursor::skip_array(GgufType element, int64_t count) {
  const std::byte* begin = bytes_.data() + offset_;
  if (element == GgufType::string) {
    for (int64_t i = 0; i < count; ++i) read_string();
    return begin;
  }
  take(count * min_bytes(element));  // no overflow: read_count() has held count to the file's size
  if (element != GgufType::boolean) return begin;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = std::to_integer<int>(begin[i]);
    if (value > 1) malformed("is a bool with value {}, 0 or 1 is allowed", value);
  }
  return begin;
}

}  // namespace braid
