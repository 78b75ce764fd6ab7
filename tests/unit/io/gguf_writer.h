#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid::test {

// Bytes of a value as GGUF stores it.
template <class T>
std::string encoded(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string encoded(std::string_view text) {
  return encoded<uint64_t>(text.size()) + std::string(text);
}
inline std::string encoded(const char* text) {
  return encoded(std::string_view(text));
}

// Writes GGUF files for tests, right ones and, where a field is set by hand, wrong ones. Types are
// the format's numbers, shapes outermost first.
class GgufWriter {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> num_tensors, num_entries;
  int64_t alignment = 32;

  // An entry whose value is already encoded.
  GgufWriter& entry(std::string_view key, uint32_t type, const std::string& value) {
    entries_ += encoded(key) + encoded(type) + value;
    ++entry_count_;
    return *this;
  }
  GgufWriter& array(std::string_view key, uint32_t type, const std::vector<std::string>& values,
                    std::optional<uint64_t> count = {}) {
    std::string value = encoded(type) + encoded(count.value_or(values.size()));
    for (const std::string& element : values) value += element;
    return entry(key, 9, value);
  }
  GgufWriter& u32(std::string_view key, uint32_t value) { return entry(key, 4, encoded(value)); }
  GgufWriter& text(std::string_view key, std::string_view value) {
    return entry(key, 8, encoded(value));
  }

  // `data` goes where the next aligned place is, unless `offset` says otherwise.
  GgufWriter& tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                     const std::string& data, std::optional<uint64_t> offset = {}) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensors_ += encoded(name) + encoded<uint32_t>(static_cast<uint32_t>(shape.size()));
    for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) tensors_ += encoded(*dim);
    tensors_ += encoded(type) + encoded<uint64_t>(offset.value_or(data_.size()));
    data_ += data;
    ++tensor_count_;
    return *this;
  }

  std::string build() const {
    std::string out = magic + encoded(version) + encoded(num_tensors.value_or(tensor_count_)) +
                      encoded(num_entries.value_or(entry_count_)) + entries_ + tensors_;
    if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  std::string entries_, tensors_, data_;
  uint64_t entry_count_ = 0, tensor_count_ = 0;
};

}  // namespace braid::test
