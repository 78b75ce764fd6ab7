#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

// An entry of a safetensors header, as written: [begin, end) counts from the first byte after the
// header.
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

// The JSON of a safetensors header, read in a single pass without a tree in memory. Checks the form
// alone (types; missing, unknown or double fields); fails with kMalformed.
SafetensorsJson parse_safetensors_json(const std::string& file, std::string_view text);

}  // namespace braid
