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
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/progress.h"
#include "braid/table.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {
namespace {

constexpr int64_t kMostSequences = 1024;

struct BenchOptions {
  ModelOption model;
  std::string path;    // of the model; "": it has random weights
  std::string config;  // of a model whose weights are random
  bool random_weights = false;
  std::string weights;  // their type; "": bf16
  int64_t layers = 0;   // 0: all
  int64_t prompt = 512;
  int64_t decode = 128;
  std::vector<int64_t> batches = {1};
  int64_t depth = 0;
  int64_t chunk = 0;  // 0: the engine's
  int repetitions = 5;
  bool json = false;
  bool no_communication = false;
  ParallelOptions parallel;

  int64_t most_sequences() const { return std::ranges::max(batches); }
};

// What the machine does at most, over all ranks: bytes read and operations a second; 0: not known.
struct Roof {
  double bytes = 0;
  double flops = 0;
};

struct Result {
  std::string name;    // "pp512", "tg128 @ d1024"
  int64_t tokens = 0;  // of each sequence
  int64_t batch = 1;   // sequences that are decoded together
  std::vector<double> seconds;
  double bytes = 0;  // weights and KV that a decode step must read; 0 for a prompt
  double flops = 0;  // of a decode step, or of the whole prompt
  LoopStats loop;    // of a device's decode loop

  bool decode() const { return bytes > 0; }
  std::vector<double> tokens_per_s() const {
    std::vector<double> rates;
    for (double s : seconds) rates.push_back(static_cast<double>(batch * tokens) / s);
    return rates;
  }
  double mean() const {
    const std::vector<double> rates = tokens_per_s();
    return std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
  }
  double spread() const {  // standard deviation
    double sum = 0;
    for (double x : tokens_per_s()) sum += (x - mean()) * (x - mean());
    const auto n = static_cast<double>(seconds.size());
    return n > 1 ? std::sqrt(sum / (n - 1)) : 0;
  }
  // Of a decode step, or of the prompt.
  double step_seconds() const {
    return static_cast<double>(batch * (decode() ? 1 : tokens)) / mean();
  }
  // The least time that the roof leaves it, over the time it took; 0: not known.
  double floor_share(const Roof& roof) const {
    const double read = roof.bytes > 0 ? bytes / roof.bytes : 0;
    const double compute = roof.flops > 0 ? flops / roof.flops : 0;
    return std::max(read, compute) / step_seconds();
  }
};

void check(const BenchOptions& o) {
  require_between("-p", o.prompt, 0, kMostTokens);
  require_between("-n", o.decode, 0, kMostTokens);
  require_between("-d", o.depth, 0, kMostTokens);
  require_between("-r", o.repetitions, 1, 1000);
  require_between("--chunk", o.chunk, 0, kMostTokens);
  require_between("--layers", o.layers, 0, 10000);
  for (int64_t batch : o.batches) require_between("--batch", batch, 1, kMostSequences);
  if (o.prompt == 0 && o.decode == 0) {
    fail(ErrorCode::kInvalidArgument, "nothing to measure: -p and -n are both 0");
  }
}

Result measure(Engine& engine, const BenchOptions& o, int64_t tokens, bool decode, int64_t batch,
               int warm_ups) {
  const int64_t chunk = decode ? 1 : engine.prefill_chunk();
  Result result{
      .name = fmt::format("{}{}", decode ? "tg" : "pp", tokens), .tokens = tokens, .batch = batch};
  if (o.depth > 0) result.name += fmt::format(" @ d{}", o.depth);
  if (o.no_communication) result.name += ", no communication";
  Progress progress;
  progress.announce(result.name + ": warming up");
  engine.advance(0, o.depth, engine.prefill_chunk(), batch);
  // Warm up. On a GPU a step's first run loads kernels, its second becomes a graph.
  for (int i = 0; i < warm_ups; ++i) {
    engine.advance(o.depth, decode ? std::min<int64_t>(3, tokens) : tokens, chunk, batch);
  }
  for (int i = 0; i < o.repetitions; ++i) {
    progress.announce(fmt::format("{}: {} of {}", result.name, i + 1, o.repetitions));
    const auto start = std::chrono::steady_clock::now();
    result.loop = engine.advance(o.depth, tokens, chunk, batch);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    result.seconds.push_back(time.count());
  }
  return result;
}

// Parameters of the embedding, which is a table and no product, unless it is the head too.
double table_parameters(const ModelConfig& c) {
  return c.tied_head ? 0 : static_cast<double>(c.V * c.C);
}

// Keys that a decode step attends to, at mid-way.
double keys_of(const BenchOptions& o) {
  return static_cast<double>(o.depth) + static_cast<double>(o.decode) / 2;
}

// Weights once (of the embedding one row) and the KV cache of each sequence.
double decode_bytes(const Model& model, DType kv_dtype, const BenchOptions& o, int64_t batch) {
  const ModelConfig& c = model.config();
  const double embedding = c.tied_head ? 0 : static_cast<double>(model.weight_bytes("token_embd"));
  return static_cast<double>(model.weight_bytes()) - embedding +
         2 * static_cast<double>(batch) * keys_of(o) *
             static_cast<double>(c.layers * bytes_of(kv_dtype, c.Hkv * c.D));
}

// Two for each parameter and token, four for each number of a query and its keys.
double decode_flops(const Model& model, const BenchOptions& o, int64_t batch) {
  const ModelConfig& c = model.config();
  return static_cast<double>(batch) *
         (2 * (static_cast<double>(model.parameters()) - table_parameters(c)) +
          4 * keys_of(o) * static_cast<double>(c.layers * c.Hq * c.D));
}

// The head computes the last token alone.
double prompt_flops(const Model& model, const BenchOptions& o) {
  const ModelConfig& c = model.config();
  const auto n = static_cast<double>(o.prompt), cached = static_cast<double>(o.depth);
  const auto head = static_cast<double>(c.V * c.C);
  const double layers = static_cast<double>(model.parameters()) - table_parameters(c) - head;
  return n * 2 * layers + 2 * head +
         4 * n * (cached + (n + 1) / 2) * static_cast<double>(c.layers * c.Hq * c.D);
}

// "82% of bytes 4.55 TB/s" or "64% of products 790 TFLOP/s": the nearer of the two roofs.
std::string floor_text(const Result& r, const Roof& roof) {
  const double read = roof.bytes > 0 ? r.bytes / roof.bytes : 0;
  const double compute = roof.flops > 0 ? r.flops / roof.flops : 0;
  if (read == 0 && compute == 0) {
    return r.decode() ? fmt::format("{:.0f} GB/s", 1e-9 * r.bytes / r.step_seconds()) : "-";
  }
  const double share = 100 * r.floor_share(roof);
  // What fits in the caches is read faster than the roof's large buffers.
  return read >= compute ? fmt::format("{:.0f}% of {:.1f} GB/s{}", share, 1e-9 * roof.bytes,
                                       share > 105 ? ", cached" : "")
                         : fmt::format("{:.0f}% of {:.1f} TFLOP/s", share, 1e-12 * roof.flops);
}

// "2", "2, ulysses".
std::string ranks_text(const EngineConfig& config) {
  const std::string text = std::to_string(config.tp);
  if (!config.sp) return text;
  return text + fmt::format(", {}", config.sp->mode ? to_string(*config.sp->mode) : "auto");
}

std::string table(const EngineConfig& config, const Engine& engine, const Model& model,
                  const std::vector<Result>& results, const Roof& roof) {
  std::vector<std::vector<std::string>> rows = {{"model", "size", "params", "KV", "device", "ranks",
                                                 "threads", "batch", "test", "tokens/s",
                                                 "ms a step, a prompt", "of the roof"}};
  for (const Result& r : results) {
    rows.push_back(
        {model.config().name.empty() ? model.config().family : model.config().name,
         fmt::format("{:.2f} MiB", static_cast<double>(model.weight_bytes()) / (1 << 20)),
         fmt::format("{:.2f} M", static_cast<double>(model.parameters()) / 1e6),
         std::string(name(engine.kv_dtype())), config.device.cuda ? "cuda" : "cpu",
         ranks_text(config), std::to_string(engine.threads()), std::to_string(r.batch), r.name,
         fmt::format("{:.2f} ± {:.2f}", r.mean(), r.spread()),
         fmt::format("{:.3f}", 1e3 * r.step_seconds()), floor_text(r, roof)});
  }
  std::string out = table_text(
      rows, {false, true, true, false, false, true, true, true, false, true, true, true});
  if (!config.communication) {
    out += "ranks exchange nothing: results are wrong, times alone mean something\n";
  }
  for (const Result& r : results) {
    if (r.loop.steps == 0) continue;
    const auto layers = static_cast<double>(model.config().layers);
    out += fmt::format(
        "decode loop, batch {}: {} launches a step ({:.1f} a layer), {:.1f} us of CPU time for a "
        "replayed step\n",
        r.batch, r.loop.launches, static_cast<double>(r.loop.launches) / layers, r.loop.cpu_us);
  }
  return out;
}

nlohmann::ordered_json json_report(const EngineConfig& config, const Engine& engine,
                                   const Model& model, const std::vector<Result>& results,
                                   const Roof& roof) {
  nlohmann::ordered_json tests = nlohmann::ordered_json::array();
  for (const Result& r : results) {
    nlohmann::ordered_json test = {{"name", r.name},
                                   {"batch", r.batch},
                                   {"tokens_per_s", r.mean()},
                                   {"spread", r.spread()},
                                   {"samples", r.tokens_per_s()},
                                   {"step_ms", 1e3 * r.step_seconds()},
                                   {"flops", r.flops}};
    if (r.decode()) {
      test["bytes_per_token"] = r.bytes / static_cast<double>(r.batch);
      if (roof.bytes > 0) test["bandwidth_share"] = r.bytes / roof.bytes / r.step_seconds();
    }
    if (r.floor_share(roof) > 0) test["floor_share"] = r.floor_share(roof);
    if (r.loop.steps > 0) {
      test["launches"] = r.loop.launches;
      test["cpu_us"] = r.loop.cpu_us;
    }
    tests.push_back(std::move(test));
  }
  return {{"model", model.config().name},
          {"communication", config.communication},
          {"weight_bytes", model.weight_bytes()},
          {"parameters", model.parameters()},
          {config.sp ? "sp" : "tp", config.tp},
          {"device", config.device.cuda ? gpu_name(config.device.first_gpu()) : "cpu"},
          {"threads", engine.threads()},
          {"kv_dtype", name(engine.kv_dtype())},
          {"read_bandwidth", roof.bytes},
          {"product_rate", roof.flops},
          {"tests", std::move(tests)},
          {"peak_rss_mb", peak_rss_mb()}};
}

Roof measure_roof(const Engine& engine, const EngineConfig& config) {
  if (!config.device.cuda) return {measure_read_bandwidth(engine.threads() * config.tp), 0};
  const DeviceRates rates = measure_device_rates(config.device.first_gpu());
  const int gpus = config.device.num_gpus(config.tp);
  return {gpus * rates.read_bytes, gpus * rates.products};
}

Model open(const BenchOptions& o) {
  if (o.config.empty()) {
    if (o.random_weights || !o.weights.empty() || o.layers > 0) {
      fail(ErrorCode::kInvalidArgument,
           "--random-weights, --weights and --layers go with --config, not -m");
    }
    return Model(o.path);
  }
  if (!o.random_weights) {
    fail(ErrorCode::kInvalidArgument,
         "--config names a shape without weights: add --random-weights");
  }
  const std::optional<DType> weights = parse_dtype(o.weights.empty() ? "bf16" : o.weights);
  if (!weights || (!is_float(*weights) && !is_quantized(*weights))) {
    fail(ErrorCode::kInvalidArgument,
         "--weights '{}': f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k or q6_k",
         o.weights);
  }
  ModelShape shape = read_model_shape(o.config, *weights);
  if (o.layers > shape.config.layers) {
    fail(ErrorCode::kInvalidArgument, "--layers is {}, {} has {}", o.layers, o.config,
         shape.config.layers);
  }
  if (o.layers > 0) shape.config.layers = o.layers;
  Progress progress;
  progress.announce("making random weights for " + o.config);
  return Model(shape, 1);
}

void bench(const BenchOptions& o) {
  check(o);
  const Model model = open(o);
  print_remarks(model.config().remarks);
  ParallelRun parallel(o.parallel, {o.path, o.config});
  EngineConfig config = parallel.engine_config();
  config.max_context = o.depth + std::max(o.prompt, o.decode) + 1;
  config.sequences = o.decode > 0 ? o.most_sequences() : 1;
  if (o.chunk > 0) config.prefill_chunk = o.chunk;
  if (o.no_communication && config.tp == 1) {
    fail(ErrorCode::kInvalidArgument,
         "--no-communication: one rank has none; --tp, --sp with --ranks, or GPUs make several");
  }
  config.communication = !o.no_communication;
  Engine engine(model, nullptr, config);
  parallel.watch_cores();
  const int warm_ups = config.device.cuda ? 2 : 1;
  std::vector<Result> results;
  if (o.prompt > 0) {
    results.push_back(measure(engine, o, o.prompt, false, 1, warm_ups));
    results.back().flops = prompt_flops(model, o);
  }
  for (int64_t batch : o.batches) {
    if (o.decode == 0) break;
    results.push_back(measure(engine, o, o.decode, true, batch, warm_ups));
    results.back().bytes = decode_bytes(model, engine.kv_dtype(), o, batch);
    results.back().flops = decode_flops(model, o, batch);
  }
  parallel.announce();
  if (!o.json) parallel.report_cores();
  const Roof roof = measure_roof(engine, config);
  print(o.json ? json_text(json_report(config, engine, model, results, roof), 2) + "\n"
               : table(config, engine, model, results, roof));
  parallel.finish(engine);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measures prompt and decode speed");
  const auto options = std::make_shared<BenchOptions>();
  options->model.add_with_argument(*command);
  command->add_option("--config", options->config,
                      "a config.json in place of -m, with --random-weights");
  command->add_flag("--random-weights", options->random_weights, "measure without a download");
  command->add_option("--weights", options->weights,
                      "with --config: their type (bf16), also GGUF's blocks, like q4_k");
  command->add_option("--layers", options->layers, "with --config: the first layers only (0: all)");
  command->add_option("-p", options->prompt, "tokens of the prompt (0: skip)")
      ->capture_default_str();
  command->add_option("-n", options->decode, "tokens to decode (0: skip)")->capture_default_str();
  command
      ->add_option("-b,--batch", options->batches,
                   "sequences that are decoded together; several, with commas, for a row each")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-d", options->depth, "tokens in the KV cache before")->capture_default_str();
  command
      ->add_option("--chunk", options->chunk,
                   "tokens of the prompt in one step (0: 512, on a GPU 8192)")
      ->capture_default_str();
  command->add_option("-r", options->repetitions, "repetitions")->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_flag(
      "--no-communication", options->no_communication,
      "communication does nothing: what free communication would give; wrong results");
  add_parallel(*command, options->parallel);
  add_sequence(*command, options->parallel);
  command->footer(
      "Examples:\n  braid bench -m model.gguf\n"
      "  braid bench -m model.gguf -p 0 -n 64 -d 1024 --tp 2 --threads 1\n"
      "  braid bench --config config.json --random-weights --device cuda -p 0 -d 1024 -b 1,16,32\n"
      "  braid bench --config config.json --random-weights --device cuda:0,1 --sp ulysses -p 8192");
  add_bench_attention(*command);
  add_bench_serve(*command);
  command->require_subcommand(0, 1);
  command->callback([options, command] {
    if (!command->get_subcommands().empty()) return;
    options->model.rest(0);
    const bool shape = !options->config.empty();
    if (shape ? options->model.named() : options->random_weights && !options->model.named()) {
      throw CLI::RequiredError("one of --model and --config");
    }
    if (!shape) options->path = options->model.path();
    bench(*options);
  });
}

}  // namespace braid::app
