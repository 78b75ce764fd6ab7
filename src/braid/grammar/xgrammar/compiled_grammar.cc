#include "braid/grammar/compiled_grammar.h"

#include <xgrammar/xgrammar.h>

#include <utility>
#include <variant>

#include "braid/base/error.h"

namespace braid {
namespace {

class Matcher : public GrammarMatcher {
 public:
  explicit Matcher(const xgrammar::CompiledGrammar& grammar)
      : matcher_(grammar),
        words_(xgrammar::GetBitmaskSize(grammar.GetTokenizerInfo().GetVocabSize())) {}

  bool accept(int32_t id) override { return !matcher_.IsTerminated() && matcher_.AcceptToken(id); }
  void fill(std::span<uint32_t> mask) override {
    BRAID_CHECK(std::ssize(mask) == words_);
    if (matcher_.IsTerminated()) {
      for (uint32_t& word : mask) word = 0;
      for (const int id : matcher_.GetStopTokenIds())
        mask[static_cast<size_t>(id / 32)] |= uint32_t{1} << (id % 32);
      return;
    }
    int64_t shape = words_;
    DLTensor tensor{.data = mask.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    if (!matcher_.FillNextTokenBitmask(&tensor)) {
      for (uint32_t& word : mask) word = ~uint32_t{0};
    }
  }

 private:
  xgrammar::GrammarMatcher matcher_;
  const int64_t words_;
};

class Compiled : public CompiledGrammar {
 public:
  explicit Compiled(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}
  std::unique_ptr<GrammarMatcher> begin() const override {
    return std::make_unique<Matcher>(grammar_);
  }
  int64_t bytes() const override { return static_cast<int64_t>(grammar_.MemorySizeBytes()); }

 private:
  xgrammar::CompiledGrammar grammar_;
};

}  // namespace

struct GrammarLibrary::Impl {
  xgrammar::TokenizerInfo tokens;
};

std::string_view GrammarLibrary::version() {
  return "xgrammar " BRAID_XGRAMMAR_VERSION;
}

GrammarLibrary::GrammarLibrary(const GrammarTokens& tokens)
    : impl_(std::make_unique<Impl>(
          Impl{xgrammar::TokenizerInfo(tokens.texts, xgrammar::VocabType::RAW,
                                       static_cast<int>(tokens.vocabulary), tokens.ends)})) {}

GrammarLibrary::~GrammarLibrary() = default;

std::string GrammarLibrary::compile(const std::string& tag) const {
  xgrammar::GrammarCompiler compiler(impl_->tokens, 1, false);
  return compiler.CompileStructuralTag(tag).SerializeJSON();
}

std::shared_ptr<const CompiledGrammar> GrammarLibrary::load(const std::string& text) const {
  auto loaded = xgrammar::CompiledGrammar::DeserializeJSON(text, impl_->tokens);
  if (!std::holds_alternative<xgrammar::CompiledGrammar>(loaded))
    fail(ErrorCode::kMalformed, "a compiled grammar cannot be read");
  return std::make_shared<Compiled>(std::get<xgrammar::CompiledGrammar>(std::move(loaded)));
}

}  // namespace braid
