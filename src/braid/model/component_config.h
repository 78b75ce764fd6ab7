#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "braid/io/json_object.h"

namespace braid {

// Readers for a pipeline component's config.json; messages name the component ("text_encoder").

// A counting field: `otherwise` without the field; fails with kUnsupported outside 1 ..
// 2^20.
int64_t read_count(const JsonObject& config, std::string_view component, std::string_view key,
                   int64_t otherwise);

// A positive number, as read_count does.
float read_positive(const JsonObject& config, std::string_view component, std::string_view key,
                    float otherwise);

// Fails with kUnsupported if a field is present and outside `known`.
void require_text(const JsonObject& config, std::string_view component, std::string_view key,
                  std::initializer_list<std::string_view> known);

// The library that writes a configuration.
enum class ConfigWriter : uint8_t { diffusers, transformers };

// Fails with kUnsupported, by name, on a field that is neither `known` nor a note of the library
// without an effect on results: a field that nobody reads would change pictures in silence.
// Fields that are null, and names that begin with an underscore, pass.
void require_known_fields(const JsonObject& config, std::string_view component, ConfigWriter writer,
                          std::initializer_list<std::string_view> known);

}  // namespace braid
