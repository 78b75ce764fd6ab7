#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "braid/grammar/compiled_grammar.h"

namespace braid {

// How long and how large a compilation may become.
struct GrammarLimits {
  double seconds = 10;
  int64_t memory = int64_t{512} << 20;  // bytes
  int64_t result = int64_t{32} << 20;   // bytes in the compiled text
};

// The program that compiles: the running program, with the argument below.
inline constexpr const char* kThisProgram = "/proc/self/exe";
inline constexpr const char* kHelperArgument = "compile-grammar";

// A helper process' input: tokens and tag.
std::string helper_input(const GrammarTokens& tokens, const std::string& tag);

// The helper process: reads helper_input() from stdin, writes the compiled text to stdout. Returns
// its exit status, 0 for success; otherwise stdout has the reason.
int compile_grammar_main();

// Compiles in a process running `program`, which is killed once it passes a limit or `stop` is set.
// Fails with kInvalidArgument, naming the limit or xgrammar's reason, and with kAborted after a
// stop or if the process cannot be made.
std::string compile_apart(const std::string& program, const std::string& input,
                          const GrammarLimits& limits, const std::atomic<bool>& stop);

}  // namespace braid
