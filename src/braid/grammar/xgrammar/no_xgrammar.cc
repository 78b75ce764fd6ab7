#include "braid/base/error.h"
#include "braid/grammar/compiled_grammar.h"

namespace braid {

struct GrammarLibrary::Impl {};

std::string_view GrammarLibrary::version() {
  return "";
}

GrammarLibrary::GrammarLibrary(const GrammarTokens& /*tokens*/) {
  fail(ErrorCode::kUnsupported, "this program was built without grammars");
}

GrammarLibrary::~GrammarLibrary() = default;

std::string GrammarLibrary::compile(const std::string& /*tag*/) const {
  return "";
}

std::shared_ptr<const CompiledGrammar> GrammarLibrary::load(const std::string& /*text*/) const {
  return nullptr;
}

}  // namespace braid
