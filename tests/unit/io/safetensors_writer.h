#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braid::test {

// A safetensors file of this header text and data, right or wrong as they are.
inline std::string safetensors_bytes(std::string_view header, std::string_view data = {}) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return out.append(header).append(data);
}

}  // namespace braid::test
