#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Small records as bytes, for processes with equal build and byte order.
namespace braid::job {

class Packer {
 public:
  Packer& add(int64_t value) { return raw(&value, sizeof(value)); }
  Packer& add(std::string_view text) {
    add(std::ssize(text));
    return raw(text.data(), text.size());
  }
  Packer& add(std::span<const int32_t> values) {
    add(std::ssize(values));
    return raw(values.data(), values.size_bytes());
  }
  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  Packer& raw(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string bytes_;
};

// Reads in the order of Packer's calls. Fails with kMalformed on missing bytes.
class Unpacker {
 public:
  explicit Unpacker(std::string bytes);
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  int64_t number() {
    int64_t value = 0;
    raw(&value, sizeof(value));
    return value;
  }
  std::string text() {
    std::string result(count(1), '\0');
    raw(result.data(), result.size());
    return result;
  }
  void numbers(std::vector<int32_t>& result) {
    result.resize(count(sizeof(int32_t)));
    raw(result.data(), result.size() * sizeof(int32_t));
  }
  bool at_end() const { return rest_.empty(); }

 private:
  size_t count(size_t size) {
    const int64_t n = number();
    if (n < 0 || static_cast<uint64_t>(n) > rest_.size() / size) missing();
    return static_cast<size_t>(n);
  }
  void raw(void* data, size_t size) {
    if (size > rest_.size()) missing();
    if (size > 0) std::memcpy(data, rest_.data(), size);
    rest_.remove_prefix(size);
  }
  [[noreturn]] void missing() const;
  const std::string bytes_;
  std::string_view rest_;  // the unread rest
};

}  // namespace braid::job
