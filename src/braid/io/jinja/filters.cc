#include "braid/io/jinja/filters.h"

namespace braid::jinja {

Filter find_filter(std::string_view name) {
  for (auto find : {find_text_filter, find_sequence_filter, find_select_filter}) {
    if (Filter filter = find(name)) return filter;
  }
  return find_number_filter(name);
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, const Args& args) {
  const Filter filter = find_filter(name);
  if (!filter) runtime.fail_as(ErrorCode::kUnsupported, fmt::format("no filter named '{}'", name));
  return filter(runtime, input, args);
}

}  // namespace braid::jinja
