// Greedy completion on llama.cpp's library with nothing around it: loads, reads the prompt, prints
// each piece as it is made. tools/bench_peer.py times its start and reads its peak memory. All
// settings that are not arguments are llama.cpp's defaults; the context is as small as can be.
//   peer_first_token MODEL THREADS FLASH_ATTENTION(0|1) COUNT < PROMPT
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "peer_first_token: %s\n", what);
  std::exit(1);
}

std::vector<llama_token> tokenize(const llama_vocab* vocab, const std::string& text) {
  std::vector<llama_token> ids(text.size() + 2);
  const int count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()),
                                   ids.data(), static_cast<int32_t>(ids.size()), true, false);
  if (count <= 0) stop("the prompt has no tokens");
  ids.resize(static_cast<size_t>(count));
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) stop("usage: MODEL THREADS FLASH_ATTENTION COUNT < PROMPT");
  const int threads = std::atoi(argv[2]), count = std::atoi(argv[4]);
  const bool flash = std::atoi(argv[3]) != 0;
  const std::string prompt((std::istreambuf_iterator<char>(std::cin)), {});
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();

  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(argv[1], llama_model_default_params()), llama_model_free);
  if (!model) stop("cannot load the model");
  const llama_vocab* vocab = llama_model_get_vocab(model.get());
  std::vector<llama_token> ids = tokenize(vocab, prompt);

  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(ids.size()) + static_cast<uint32_t>(count);
  params.n_batch = static_cast<uint32_t>(ids.size());
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::unique_ptr<llama_context, decltype(&llama_free)> context(
      llama_init_from_model(model.get(), params), llama_free);
  if (!context) stop("cannot make a context");
  const std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> sampler(
      llama_sampler_init_greedy(), llama_sampler_free);

  for (int i = 0; i < count; ++i) {
    if (llama_decode(context.get(),
                     llama_batch_get_one(ids.data(), static_cast<int32_t>(ids.size())))) {
      stop("cannot decode");
    }
    ids.assign(1, llama_sampler_sample(sampler.get(), context.get(), -1));
    char piece[256];
    const int length = llama_token_to_piece(vocab, ids[0], piece, sizeof(piece), 0, true);
    std::fwrite(piece, 1, static_cast<size_t>(length > 0 ? length : 0), stdout);
    std::fflush(stdout);
  }
  return 0;
}
