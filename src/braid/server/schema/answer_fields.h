#pragma once

#include <vector>

#include "braid/server/schema/fields.h"

namespace braid::server {

inline constexpr double kMostTokens = 1 << 24;  // more than any context has
inline constexpr std::string_view kIdsSchema = R"("items": {"type": "integer", "minimum": 0})";

// `fields`, then the shared fields of answering endpoints, except fields named in `without`.
std::vector<Field> with_answer_fields(std::vector<Field> fields,
                                      std::vector<std::string_view> without = {});

}  // namespace braid::server
