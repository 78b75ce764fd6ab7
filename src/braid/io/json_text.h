#pragma once

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace braid {

struct JsonLimits {
  int64_t bytes = int64_t{64} << 20;
  int depth = 64;
};

// JSON from a file that is not trusted, strictly: UTF-8, no key twice in one object, no NUL,
// numbers in range, within the limits. Fails with kMalformed, "ORIGIN: is no valid JSON: ...", or
// by the name that foreign_file() knows. The parsed value may take some ten times the text's
// memory: give a limit that fits.
nlohmann::json parse_json(std::string_view text, const std::string& origin,
                          const JsonLimits& limits = {});
// As parse_json; fails as MappedFile does where the file cannot be read.
nlohmann::json read_json_file(const std::string& path, const JsonLimits& limits = {});

// The cause in the JSON library's message, cut to a single line.
std::string json_error_text(const std::exception& error);

}  // namespace braid
