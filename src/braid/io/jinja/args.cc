#include "braid/io/jinja/args.h"

#include <algorithm>

#include "braid/io/jinja/operators.h"

namespace braid::jinja {

Bound::Bound(Runtime& runtime, std::string_view function, const Args& args,
             std::initializer_list<std::string_view> parameters, size_t required)
    : runtime_(runtime), function_(function), parameters_(parameters), values_(parameters.size()) {
  if (args.positional.size() > parameters.size()) {
    runtime.fail("{}() takes at most {} argument(s), not {}", function, parameters.size(),
                 args.positional.size());
  }
  std::copy(args.positional.begin(), args.positional.end(), values_.begin());
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(parameters_.begin(), parameters_.end(), name);
    if (at == parameters_.end()) {
      runtime.fail("{}() got an unexpected keyword argument '{}'", function, name);
    }
    auto& slot = values_[static_cast<size_t>(at - parameters_.begin())];
    if (slot) runtime.fail("{}() got multiple values for argument '{}'", function, name);
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) {
      runtime.fail("{}() misses its argument '{}'", function, parameters_[i]);
    }
  }
}

bool Bound::flag(size_t i, bool otherwise) const {
  return has(i) ? truthy(*values_[i]) : otherwise;
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (!has(i)) return otherwise;
  int64_t n = 0;
  if (is_integer(*values_[i], &n)) return n;
  if (values_[i]->undefined()) runtime_.fail_undefined(*values_[i]);
  runtime_.fail("{}(): '{}' must be an integer, not {}", function_, parameters_[i],
                type_name(*values_[i]));
}

std::string_view Bound::text(size_t i, std::string_view otherwise) const {
  if (!has(i)) return otherwise;
  if (const Str* s = values_[i]->str()) return s->text;
  runtime_.fail("{}(): '{}' must be str, not {}", function_, parameters_[i],
                type_name(*values_[i]));
}

}  // namespace braid::jinja
