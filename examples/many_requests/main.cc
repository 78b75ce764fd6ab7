// many_requests MODEL PROMPT...: completes all prompts at once, 16 tokens each.
#include <braid/braid.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  const auto engine = braid::Engine::open({.model = argv[1]});
  std::vector<braid::AnswerRequest> requests;
  for (int i = 2; i < argc; ++i) {
    requests.push_back({.prompt = engine->tokenizer().encode(argv[i]), .max_tokens = 16});
  }
  const std::vector<braid::Answer> answers = engine->generate_all(std::move(requests));
  for (int i = 2; i < argc; ++i) std::cout << argv[i] << answers[size_t(i - 2)].text << '\n';
} catch (const braid::Error& error) {
  std::cerr << "many_requests: " << error.what() << '\n';
  return 1;
}
