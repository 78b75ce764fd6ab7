// chat MODEL [plan.svg]: answers each line of standard input as a chat, or completes the line where
// the model has no chat template. With a second argument, draws a step of the model on two H200.
#include <braid/braid.h>

#include <fstream>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 2) return 2;
  const auto engine = braid::Engine::open({.model = argv[1]});
  std::vector<braid::ChatMessage> messages;
  for (std::string line; std::getline(std::cin, line);) {
    messages.push_back({"user", line});
    braid::AnswerRequest request{.max_tokens = 32, .sampling = engine->default_sampling(true)};
    request.prompt =
        engine->chat() ? engine->chat()->encode(messages) : engine->tokenizer().encode(line);
    const braid::Answer answer = engine->generate(request, [](std::string_view text) {
      std::cout << text << std::flush;
      return true;  // false would end the answer
    });
    std::cout << '\n';
    std::cerr << answer.end.prompt_tokens << " tokens read, " << answer.end.cached_tokens
              << " of them cached; " << answer.end.answer_tokens << " made\n";
    messages.push_back({"assistant", answer.text});
  }
  if (argc < 3) return 0;
  const braid::StepPlans plans({.model = argv[1], .schedule = "overlap", .tokens = 1024, .tp = 2});
  const braid::Timeline timeline = plans.timeline();
  std::ofstream(argv[2]) << braid::timeline_svg({&timeline, 1});
} catch (const braid::Error& error) {
  std::cerr << "chat: " << error.what() << '\n';
  return 1;
}
