#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "braid/commands.h"
#include "braid/engine/bandwidth.h"
#include "braid/engine/generate.h"
#include "braid/model/model_shape.h"
#include "braid/options.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct BenchOptions {
  std::string model;
  std::string config;  // of a model whose weights are random
  bool random_weights = false;
  int64_t layers = 0;  // 0: all
  int64_t prompt = 512;
  int64_t decode = 128;
  int64_t depth = 0;
  int64_t chunk = 0;  // 0: the engine's
  int repetitions = 5;
  bool json = false;
  ParallelOptions parallel;
};

struct Result {
  std::string name;  // "pp512", "tg128 @ d1024"
  std::vector<double> tokens_per_s;
  double bytes_per_token = 0;  // weights and KV that a decode step must read; 0 for a prompt

  double mean() const {
    return std::accumulate(tokens_per_s.begin(), tokens_per_s.end(), 0.0) /
           static_cast<double>(tokens_per_s.size());
  }
  double spread() const {  // standard deviation
    double sum = 0;
    for (double x : tokens_per_s) sum += (x - mean()) * (x - mean());
    const auto n = static_cast<double>(tokens_per_s.size());
    return n > 1 ? std::sqrt(sum / (n - 1)) : 0;
  }
};

void check(const BenchOptions& o) {
  require_at_least("-p", o.prompt, 0);
  require_at_least("-n", o.decode, 0);
  require_at_least("-d", o.depth, 0);
  require_at_least("-r", o.repetitions, 1);
  require_at_least("--chunk", o.chunk, 0);
  require_at_least("--layers", o.layers, 0);
  if (o.prompt == 0 && o.decode == 0) {
    fail(ErrorCode::kInvalidArgument, "nothing to measure: -p and -n are both 0");
  }
}

Result measure(Engine& engine, const BenchOptions& o, int64_t tokens, bool decode) {
  const int64_t chunk = decode ? 1 : engine.prefill_chunk();
  Result result{fmt::format("{}{}", decode ? "tg" : "pp", tokens), {}};
  if (o.depth > 0) result.name += fmt::format(" @ d{}", o.depth);
  engine.advance(0, o.depth, engine.prefill_chunk());
  engine.advance(o.depth, decode ? 2 : tokens, chunk);  // warm up
  for (int i = 0; i < o.repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    engine.advance(o.depth, tokens, chunk);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    result.tokens_per_s.push_back(static_cast<double>(tokens) / time.count());
  }
  return result;
}

// Weights once (of the embedding one row) and the KV cache at mid-way.
double decode_bytes(const Model& model, const BenchOptions& o) {
  const ModelConfig& c = model.config();
  const double embedding = c.tied_head ? 0 : static_cast<double>(model.weight_bytes("token_embd"));
  const double keys = static_cast<double>(o.depth) + static_cast<double>(o.decode) / 2;
  return static_cast<double>(model.weight_bytes()) - embedding +
         2 * keys * static_cast<double>(c.layers * bytes_of(model.default_kv_dtype(), c.Hkv * c.D));
}

std::string table(const BenchOptions& o, const Engine& engine, const Model& model,
                  const std::vector<Result>& results, double bandwidth) {
  std::string out = fmt::format(
      "| model | size | params | tp | threads | test | tokens/s | read of memory |\n"
      "|---|---:|---:|---:|---:|---|---:|---:|\n");
  for (const Result& r : results) {
    const double rate = r.bytes_per_token * r.mean();  // bytes/s of weights and KV
    const std::string share = rate == 0       ? "-"
                              : bandwidth > 0 ? fmt::format("{:.0f}% of {:.1f} GB/s",
                                                            100 * rate / bandwidth, bandwidth / 1e9)
                                              : fmt::format("{:.0f} GB/s", rate / 1e9);
    out += fmt::format("| {} | {:.2f} MiB | {:.2f} M | {} | {} | {} | {:.2f} ± {:.2f} | {} |\n",
                       model.config().name.empty() ? model.config().family : model.config().name,
                       static_cast<double>(model.weight_bytes()) / (1 << 20),
                       static_cast<double>(model.parameters()) / 1e6, o.parallel.engine.tp,
                       engine.threads(), r.name, r.mean(), r.spread(), share);
  }
  return out;
}

nlohmann::ordered_json json_report(const BenchOptions& o, const Engine& engine, const Model& model,
                                   const std::vector<Result>& results, double bandwidth) {
  nlohmann::ordered_json tests = nlohmann::ordered_json::array();
  for (const Result& r : results) {
    nlohmann::ordered_json test = {{"name", r.name},
                                   {"tokens_per_s", r.mean()},
                                   {"spread", r.spread()},
                                   {"samples", r.tokens_per_s}};
    if (r.bytes_per_token > 0) {
      test["bytes_per_token"] = r.bytes_per_token;
      if (bandwidth > 0) test["bandwidth_share"] = r.bytes_per_token * r.mean() / bandwidth;
    }
    tests.push_back(std::move(test));
  }
  return {{"model", model.config().name},     {"weight_bytes", model.weight_bytes()},
          {"parameters", model.parameters()}, {"tp", o.parallel.engine.tp},
          {"threads", engine.threads()},      {"read_bandwidth", bandwidth},
          {"tests", std::move(tests)},        {"peak_rss_mb", peak_rss_mb()}};
}

Model open(const BenchOptions& o) {
  if (o.config.empty()) {
    if (o.random_weights || o.layers > 0) {
      fail(ErrorCode::kInvalidArgument, "--random-weights and --layers go with --config, not -m");
    }
    return Model(o.model);
  }
  if (!o.random_weights) {
    fail(ErrorCode::kInvalidArgument,
         "--config names a shape without weights: add --random-weights");
  }
  ModelShape shape = read_model_shape(o.config);
  if (o.layers > shape.config.layers) {
    fail(ErrorCode::kInvalidArgument, "--layers is {}, {} has {}", o.layers, o.config,
         shape.config.layers);
  }
  if (o.layers > 0) shape.config.layers = o.layers;
  return Model(shape, 1);
}

void bench(const BenchOptions& o) {
  check(o);
  const Model model = open(o);
  ParallelRun parallel(o.parallel);
  EngineConfig config = parallel.engine_config();
  config.max_context = o.depth + std::max(o.prompt, o.decode) + 1;
  if (o.chunk > 0) config.prefill_chunk = o.chunk;
  Engine engine(model, nullptr, config);
  std::vector<Result> results;
  if (o.prompt > 0) results.push_back(measure(engine, o, o.prompt, false));
  if (o.decode > 0) {
    results.push_back(measure(engine, o, o.decode, true));
    results.back().bytes_per_token = decode_bytes(model, o);
  }
  // A GPU's is measured by bench_cuda_linear.
  const double bandwidth =
      config.device.cuda ? 0 : measure_read_bandwidth(engine.threads() * o.parallel.engine.tp);
  parallel.finish(engine);
  print(o.json ? json_report(o, engine, model, results, bandwidth).dump(2) + "\n"
               : table(o, engine, model, results, bandwidth));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measures prompt and decode speed");
  const auto options = std::make_shared<BenchOptions>();
  add_model(*command, options->model, false);  // `bench attention` has none
  command->add_option("--config", options->config,
                      "a config.json in place of -m, with --random-weights (bf16)");
  command->add_flag("--random-weights", options->random_weights, "measure without a download");
  command->add_option("--layers", options->layers, "with --config: the first layers only (0: all)");
  command->add_option("-p", options->prompt, "tokens of the prompt (0: skip)")
      ->capture_default_str();
  command->add_option("-n", options->decode, "tokens to decode (0: skip)")->capture_default_str();
  command->add_option("-d", options->depth, "tokens in the KV cache before")->capture_default_str();
  command
      ->add_option("--chunk", options->chunk,
                   "tokens of the prompt in one step (0: 512, on a GPU 8192)")
      ->capture_default_str();
  command->add_option("-r", options->repetitions, "repetitions")->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object");
  add_parallel(*command, options->parallel);
  command->footer(
      "Examples:\n  braid bench -m model.gguf\n"
      "  braid bench -m model.gguf -p 0 -n 64 -d 1024 --tp 2 --threads 1");
  add_bench_attention(*command);
  command->require_subcommand(0, 1);
  command->callback([options, command] {
    if (!command->get_subcommands().empty()) return;
    if (options->model.empty() == options->config.empty()) {
      throw CLI::RequiredError("one of --model and --config");
    }
    bench(*options);
  });
}

}  // namespace braid::app
