#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "braid/base/error.h"
#include "braid/grammar/compiled_grammar.h"
#include "braid/grammar/grammar_helper.h"
#include "braid/grammar/grammar_mask.h"
#include "braid/io/tokenizer.h"

namespace braid {

struct GrammarConfig {
  std::string program = kThisProgram;  // the compiling program
  GrammarLimits limits;
  int compilers = 8;                   // processes at once: slow ones leave others room
  int64_t most_waiting = 64;           // tags waiting for a process
  int64_t cache = int64_t{256} << 20;  // bytes of compiled grammars to keep
};

// A model's tokens as grammars see them. `vocabulary`: rows in the model's head.
GrammarTokens grammar_tokens(const Tokenizer& tokenizer, int64_t vocabulary);

// Compiles grammars for a model in processes apart, and keeps grammars and reasons for failures.
// Any thread may call any function.
class GrammarStore {
 public:
  // Fails with kUnsupported in builds without grammars.
  GrammarStore(const Tokenizer& tokenizer, int64_t vocabulary, GrammarConfig config);
  // Kills running compilations.
  ~GrammarStore();

  // A tag on its way to a grammar.
  class Pending {
   public:
    // The grammar, or none as long as it compiles. Throws the compilation's Error.
    std::shared_ptr<const CompiledGrammar> get() const;

   private:
    friend class GrammarStore;
    mutable std::mutex mutex_;
    std::shared_ptr<const CompiledGrammar> grammar_;
    std::optional<Error> error_;
    std::vector<std::function<void()>> wake_;
  };

  // Looks the tag up or lets it compile. `wake` is called, perhaps at once, when get() has an
  // answer. Fails with kResource where too many tags wait.
  std::shared_ptr<const Pending> compile(const std::string& tag, std::function<void()> wake);
  // The same, and waits: as long as the tags before and this one may take. Fails with kDeadline.
  // `keep_waiting` is called every 0.05 s; false ends the wait with kAborted.
  std::shared_ptr<const CompiledGrammar> compile_now(
      const std::string& tag, const std::function<bool()>& keep_waiting = {});

  const GrammarSpelling& spelling() const { return spelling_; }

 private:
  struct Entry {
    std::shared_ptr<Pending> pending;
    int64_t bytes = 0;
    std::list<std::string>::iterator age;
  };

  void work();
  void finish(const std::string& tag, Pending& pending,
              std::shared_ptr<const CompiledGrammar> grammar, std::optional<Error> error);

  const GrammarConfig config_;
  const GrammarTokens tokens_;
  const GrammarSpelling spelling_;
  const GrammarLibrary library_;
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Entry> entries_;
  std::list<std::string> ages_;  // entries, the latest used first
  std::deque<std::string> queue_;
  int64_t bytes_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace braid
