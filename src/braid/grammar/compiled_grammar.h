#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

// A model's tokens as grammars see them.
struct GrammarTokens {
  std::vector<std::string> texts;  // bytes by id; empty: a special token, which no grammar matches
  std::vector<int32_t> ends;       // ids that may come once the answer is complete, and only then
  int64_t vocabulary = 0;          // rows in the model's head
};

// How far an answer has come in its grammar. Not for several threads.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;
  // The next token. False, and nothing changed, where the grammar does not allow the token.
  virtual bool accept(int32_t id) = 0;
  // Sets the allowed tokens: bit i % 32 in word i / 32, ceil(vocabulary / 32) words.
  virtual void fill(std::span<uint32_t> mask) = 0;
};

// A compiled grammar; threads may share one.
class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  virtual std::unique_ptr<GrammarMatcher> begin() const = 0;
  virtual int64_t bytes() const = 0;  // bytes in memory, about
};

// xgrammar for one model. In builds without xgrammar the constructor fails with kUnsupported.
class GrammarLibrary {
 public:
  // The grammar library's version in this build: "xgrammar 0.2.8"; empty: no grammars.
  static std::string_view version();

  explicit GrammarLibrary(const GrammarTokens& tokens);
  ~GrammarLibrary();

  // Compiles a tag (grammar_tag.h) to text for load(). May take minutes and gigabytes, and warns
  // on stderr of words that it drops: run in a process apart (grammar_helper.h). Fails with
  // std::runtime_error.
  std::string compile(const std::string& tag) const;
  // Fails with kMalformed if the text is for other tokens.
  std::shared_ptr<const CompiledGrammar> load(const std::string& text) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace braid
