#include "braid/io/jinja/template.h"

#include "braid/io/jinja/globals.h"
#include "braid/io/jinja/interpreter.h"
#include "braid/io/jinja/json.h"
#include "braid/io/jinja/parser.h"

namespace braid::jinja {

Template::Template(std::string_view source) : ast_(std::make_unique<const Ast>(parse(source))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(std::span<const Variable> variables,
                             const RenderOptions& options) const {
  Runtime runtime(options.limits, options.now);
  Scope globals(nullptr);
  set_globals(runtime, globals);
  Scope data(&globals);
  for (const auto& [name, value] : variables) {
    data.set(runtime, name, from_json(runtime, *value, name));
  }
  Scope top(&data);
  Text out(runtime);
  Interpreter interpreter(runtime);
  interpreter.run(ast_->body, top, out);
  return out.take();
}

std::string Template::render(const nlohmann::ordered_json& variables,
                             const RenderOptions& options) const {
  std::vector<Variable> list;
  for (const auto& [name, value] : variables.items()) list.push_back({name, &value});
  return render(list, options);
}

}  // namespace braid::jinja
