#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

struct Ast;

// A variable that a template sees; the value must outlive the call.
struct Variable {
  std::string_view name;
  const nlohmann::ordered_json* value;
};

struct RenderOptions {
  Limits limits;
  std::optional<std::tm> now;  // time for strftime_now(); absent: the local time
};

// A Jinja template, as Hugging Face runs chat templates: Jinja 3.1 in an immutable sandbox with
// trim_blocks, lstrip_blocks, break, continue and {% generation %}, without autoescape, inheritance
// or includes. Thread-safe once made; a rendering keeps all its state to itself.
// Differences from Python: integers have 64 bits, case mapping is of single characters, some rare
// filters and methods are missing, an unknown filter or test fails where it runs.
class Template {
 public:
  // Throws kMalformed or kUnsupported with the line and its fault.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // Later variables hide earlier ones of the same name. Throws kInvalidArgument where the template
  // fails on these variables (for raise_exception the message is the template's own), kResource at
  // a limit.
  std::string render(std::span<const Variable> variables, const RenderOptions& options = {}) const;
  // The same for the members of an object.
  std::string render(const nlohmann::ordered_json& variables,
                     const RenderOptions& options = {}) const;

 private:
  std::unique_ptr<const Ast> ast_;
};

}  // namespace braid::jinja
