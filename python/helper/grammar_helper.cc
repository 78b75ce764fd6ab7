// The program beside the module that compiles grammars: the running one is Python's interpreter.
#include "braid/grammar/grammar_helper.h"

int main() {
  return braid::compile_grammar_main();
}
