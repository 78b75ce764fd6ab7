#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

// One entry of a safetensors header, as it is written: [begin, end) counts from the first byte
// after the header.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsJson {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;
};

// The JSON of a safetensors header, read in one pass without a tree of it in memory. Checks its
// form alone (types, no field missing, unknown or twice); fails with kMalformed.
SafetensorsJson parse_safetensors_json(const std::string& file, std::string_view text);

}  // namespace braid
