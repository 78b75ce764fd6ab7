#include "braid/io/jinja/macro.h"

#include <algorithm>

#include "braid/io/jinja/operators.h"

namespace braid::jinja {
namespace {

const Value* named(const Args& args, std::string_view name) {
  for (const auto& [key, value] : args.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace

std::string_view Macro::shown_name() const {
  return definition_.name.empty() ? std::string_view("None") : definition_.name;
}

const Value* Macro::attribute(Runtime& runtime, std::string_view name) {
  if (name != "name") return nullptr;
  name_ = definition_.name.empty() ? Value() : runtime.str(definition_.name);
  return &name_;
}

Value Macro::call(Runtime& runtime, const Args& args) {
  Scope& scope = interpreter_.new_scope(scope_);
  bind(runtime, args, scope);
  Text out(runtime);
  interpreter_.run(definition_.body, scope, out);
  return out.value();
}

void Macro::bind(Runtime& runtime, const Args& args, Scope& scope) const {
  const auto& parameters = definition_.signature.parameters;
  const size_t given = std::min(args.positional.size(), parameters.size());
  bool caller_taken = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value* keyword = named(args, parameters[i]);
    std::optional<Value> value;
    if (i < given) {
      value = args.positional[i];
    } else if (keyword) {
      value = *keyword;
      caller_taken |= parameters[i] == "caller";
    }
    scope.set(runtime, parameters[i], value);
  }
  const bool own_caller =
      std::find(parameters.begin(), parameters.end(), "caller") != parameters.end();
  if (definition_.uses_caller && !own_caller) {
    const Value* caller = named(args, "caller");
    scope.set(runtime, "caller",
              caller && !caller->is_none() ? *caller : runtime.undefined("No caller defined"));
    caller_taken = true;
  }
  const Value rest = rest_keywords(runtime, args, caller_taken);
  const auto declares = [&](std::string_view name) {
    return std::find(parameters.begin(), parameters.end(), name) != parameters.end();
  };
  if (definition_.uses_kwargs && !declares("kwargs")) scope.set(runtime, "kwargs", rest);
  if (definition_.uses_varargs && !declares("varargs")) {
    scope.set(runtime, "varargs",
              runtime.tuple({args.positional.begin() + static_cast<ptrdiff_t>(given),
                             args.positional.end()}));
  } else if (args.positional.size() > parameters.size()) {
    runtime.fail("macro '{}' takes not more than {} argument(s)", shown_name(), parameters.size());
  }
  set_defaults(runtime, scope);
}

// Keyword arguments beyond the parameters; fails if some exist and the macro takes none.
Value Macro::rest_keywords(Runtime& runtime, const Args& args, bool caller_taken) const {
  const auto& parameters = definition_.signature.parameters;
  const size_t given = std::min(args.positional.size(), parameters.size());
  auto* rest = runtime.make<Dict>();
  for (const auto& [key, value] : args.named) {
    const auto open = parameters.begin() + static_cast<ptrdiff_t>(given);
    if (std::find(open, parameters.end(), key) != parameters.end()) continue;
    if (caller_taken && key == "caller") continue;
    insert(runtime, *rest, runtime.str(std::string(key)), value);
  }
  if (!definition_.uses_kwargs && !rest->entries.empty()) {
    runtime.fail("macro '{}' takes no keyword argument '{}'", shown_name(),
                 rest->entries[0].first.str()->text);
  }
  return rest;
}

void Macro::set_defaults(Runtime& runtime, Scope& scope) const {
  const auto& [parameters, defaults] = definition_.signature;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (scope.has(parameters[i])) continue;
    const size_t first = parameters.size() - defaults.size();
    scope.set(runtime, parameters[i],
              i >= first ? interpreter_.eval(*defaults[i - first], scope)
                         : runtime.undefined(
                               fmt::format("parameter '{}' was not provided", parameters[i])));
  }
}

}  // namespace braid::jinja
