// generate MODEL PROMPT: completes a prompt with 16 tokens, from a program of one's own.
#include <braid/base/error.h>
#include <braid/engine/generate.h>
#include <braid/engine/loaded_model.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  braid::LoadedModel loaded(argv[1]);
  braid::Generator generator(loaded.model, loaded.tokenizer, braid::EngineConfig{});
  const auto answer =
      generator.generate({.prompt = loaded.tokenizer.encode(argv[2]), .max_tokens = 16});
  std::cout << answer.text << '\n';
} catch (const braid::Error& error) {
  std::cerr << "generate: " << error.what() << '\n';
  return 1;
}
