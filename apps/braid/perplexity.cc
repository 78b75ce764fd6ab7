#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "braid/approximation_report.h"
#include "braid/commands.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/step_records.h"
#include "braid/expert_report.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct PerplexityOptions {
  ModelOption model;
  std::string file;
  int64_t ctx = 512;
  bool json = false;
  ParallelOptions parallel;
};

// A chunk of the text. The tokenizer's prefix (BOS) replaces the first ids, as in llama.cpp.
std::vector<int32_t> chunk_of(std::span<const int32_t> ids, int64_t ctx, int64_t index,
                              std::span<const int32_t> prefix) {
  const auto n = static_cast<size_t>(ctx);
  const auto part = ids.subspan(static_cast<size_t>(index) * n, n);
  std::vector<int32_t> chunk(part.begin(), part.end());
  std::copy_n(prefix.begin(), std::min(prefix.size(), n), chunk.begin());
  return chunk;
}

std::vector<double> score(Generator& generator, std::span<const int32_t> chunk, int64_t number) {
  try {
    return generator.score(chunk, std::ssize(chunk) / 2);
  } catch (const Error& error) {
    fail(error.code(), "chunk {}: {}", number, error.what());
  }
}

// Chunks of ctx ids without overlap; each chunk's second half is scored.
void perplexity(const PerplexityOptions& options, job::Job* job) {
  require_between("--ctx", options.ctx, 2, kMostTokens);
  options.model.rest(0);
  const std::string path = options.model.path();
  LoadedModel loaded(path);
  loaded.model.stretch(options.ctx);
  if (follow(job, loaded.model)) return;
  print_remarks(loaded.model.config().remarks);
  const std::string text = read_file(options.file);
  require_utf8(text, options.file);
  const std::vector<int32_t> ids = loaded.tokenizer.encode(text);
  ParallelRun parallel(options.parallel, {path, options.file}, job);
  EngineConfig config = parallel.engine_config();
  config.count_experts |= options.json;
  if (config.thinning.drop_queries) {
    fail(ErrorCode::kInvalidArgument,
         "--drop-queries: every token is scored, and dropped ones have seen no far keys");
  }
  config.max_context = options.ctx;
  require_positions("--ctx", options.ctx, loaded.model.config().context);
  const int64_t chunks = std::ssize(ids) / options.ctx;
  if (chunks == 0) {
    fail(ErrorCode::kInvalidArgument, "{} has {} tokens, one chunk takes {}", options.file,
         ids.size(), options.ctx);
  }
  Generator generator(loaded.model, loaded.tokenizer, config);
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    double chunk_sum = 0;
    const std::vector<double> scores =
        score(generator, chunk_of(ids, options.ctx, i, loaded.tokenizer.prefix()), i + 1);
    for (double score : scores) chunk_sum -= score;
    if (i == 0) parallel.announce();  // until then an error is one line
    if (i == 0 && generator.runner().approximation() &&
        config.thinning.importance != Importance::own) {
      std::fprintf(stderr,
                   "braid: --importance %s: later queries choose keys of tokens before them, so "
                   "the scores peek at the text\n",
                   to_string(config.thinning.importance).c_str());
    }
    sum += chunk_sum;
    count += std::ssize(scores);
    if (!options.json) {
      print(fmt::format("chunk {:4}  {:10.4f}  so far {:10.4f}\n", i + 1,
                        std::exp(chunk_sum / static_cast<double>(scores.size())),
                        std::exp(sum / static_cast<double>(count))));
    }
  }
  const double value = std::exp(sum / static_cast<double>(count));
  if (options.json) {
    nlohmann::ordered_json json = {
        {"perplexity", value}, {"tokens", count}, {"kv_dtype", name(generator.kv_dtype())}};
    add_approximation(json, generator.runner().approximation());
    add_expert_loads(json, generator.runner());
    print(json.dump() + "\n");
  } else {
    print(fmt::format("perplexity {:.4f} over {} tokens\n", value, count));
  }
  parallel.finish(generator);
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto* command = app.add_subcommand("perplexity", "Scores a text: how surprised the model is");
  const auto options = std::make_shared<PerplexityOptions>();
  options->model.add_with_argument(*command);
  command->add_option("-f,--file", options->file, "the text")->required();
  command
      ->add_option(
          "-c,--ctx,--ctx-size", options->ctx,
          "ids in a chunk; the second half of each is scored, and BOS, where the model's texts "
          "begin with it, replaces the first")
      ->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object");
  add_parallel(*command, options->parallel);
  add_sequence(*command, options->parallel);
  command->footer(
      "Examples:\n  braid perplexity -m model.gguf -f text.txt --ctx 512\n"
      "  braid perplexity -m model.gguf -f text.txt --sp torus --machines 2x2 --torus-degree 2 "
      "--threads 1");
  command->callback([options] {
    run_in_job(options->parallel.job, [&](job::Job* job) { perplexity(*options, job); });
  });
}

}  // namespace braid::app
