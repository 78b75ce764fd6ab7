// many_requests MODEL PROMPT...: completes all prompts at once, 16 tokens each.
#include <braid/engine/generate.h>
#include <braid/engine/loaded_model.h>
#include <braid/engine/requests/request_loop.h>

#include <iostream>

class Printer : public braid::AnswerSink {
 public:
  explicit Printer(std::string prompt) : text_(std::move(prompt)) {}
  bool on_piece(const braid::AnswerPiece& piece) override {
    text_ += piece.text;
    return true;
  }
  void on_end(const braid::AnswerEnd&) override { std::cout << text_ << '\n'; }

 private:
  std::string text_;
};

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  braid::LoadedModel loaded(argv[1]);
  const auto config = braid::complete({.max_context = 1024, .sequences = 8}, loaded.model);
  const auto cache = braid::cache_shape(config, loaded.model);
  braid::Runner runner(loaded.model, braid::runner_config(config, cache));
  braid::RequestLoop loop(
      runner, loaded.tokenizer, loaded.model.config().V, cache.kv_dtype,
      {.pages = cache.pages, .max_context = config.max_context, .max_running = 8});
  for (int i = 2; i < argc; ++i) {
    loop.submit({.prompt = loaded.tokenizer.encode(argv[i]), .max_tokens = 16},
                std::make_shared<Printer>(argv[i]));
  }
  return loop.drain(600) ? 0 : 1;
} catch (const braid::Error& error) {
  std::cerr << "many_requests: " << error.what() << '\n';
  return 1;
}
