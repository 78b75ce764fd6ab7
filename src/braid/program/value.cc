#include "braid/program/value.h"

namespace braid {

std::string_view to_string(BatchAxis axis) {
  switch (axis) {
    case BatchAxis::none:
      return "none";
    case BatchAxis::token:
      return "token";
    case BatchAxis::shard:
      return "shard";
    case BatchAxis::sequence:
      return "sequence";
    case BatchAxis::row:
      return "row";
    case BatchAxis::expert_row:
      return "expert_row";
  }
  return "?";
}

std::string to_string(const ValueType& type) {
  std::string out = fmt::format("{}[", name(type.dtype));
  for (int i = 0; i < type.shape.rank(); ++i) {
    if (i > 0) out += ", ";
    if (i == 0 && type.axis != BatchAxis::none) out += fmt::format("{}=", to_string(type.axis));
    out += fmt::format("{}", type.shape[i]);
  }
  return out + "]";
}

int64_t bytes_of(const ValueType& type) {
  return type.shape.rows() * bytes_of(type.dtype, type.shape[-1]);
}

}  // namespace braid
