#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "braid/base/clock.h"
#include "braid/bench_pictures.h"
#include "braid/bench_report.h"
#include "braid/bench_trace.h"
#include "braid/commands.h"
#include "braid/engine/bandwidth.h"
#include "braid/engine/generate.h"
#include "braid/engine/step_records.h"
#include "braid/model_option.h"
#include "braid/ops/experts.h"
#include "braid/options.h"
#include "braid/progress.h"
#include "braid/shape_option.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

constexpr int64_t kMostSequences = 1024;
constexpr size_t kMostRows = 10000;
constexpr int64_t kLargeBytes = int64_t{256} << 20;  // of random weights: worth a line

struct BenchOptions {
  ModelOption model;
  ShapeOption shape;
  std::string path;  // the model's; "": random weights
  std::vector<int64_t> prompts = {512};
  std::vector<int64_t> decodes = {128};
  std::vector<int64_t> batches = {1};
  std::vector<int64_t> depths = {0};
  int64_t own = 0;    // sequences of each rank's own
  int64_t chunk = 0;  // 0: the generator's
  int repetitions = 5;
  std::string output = "table";
  bool no_communication = false;
  ParallelOptions parallel;
};

// The rows to measure, in order: for each depth the prompts, then decoding by number of sequences.
std::vector<BenchResult> rows_of(const BenchOptions& o) {
  std::vector<BenchResult> rows;
  const bool communication = !o.no_communication;
  for (int64_t depth : o.depths) {
    for (int64_t prompt : o.prompts) {
      if (prompt == 0) continue;
      rows.push_back({.prompt = prompt, .depth = depth, .communication = communication});
    }
    for (int64_t decode : o.decodes) {
      if (decode == 0) continue;
      for (int64_t batch : o.batches) {
        rows.push_back(
            {.decode = decode, .depth = depth, .batch = batch, .communication = communication});
      }
    }
  }
  return rows;
}

void check(const BenchOptions& o) {
  for (int64_t prompt : o.prompts) require_between("-p", prompt, 0, kMostTokens);
  for (int64_t decode : o.decodes) require_between("-n", decode, 0, kMostTokens);
  for (int64_t depth : o.depths) require_between("-d", depth, 0, kMostTokens);
  for (int64_t batch : o.batches) require_between("--batch", batch, 1, kMostSequences);
  require_between("--own", o.own, 0, kMostSequences);
  require_between("-r", o.repetitions, 1, 1000);
  require_between("--chunk", o.chunk, 0, kMostTokens);
  const size_t rows = rows_of(o).size();
  if (rows == 0) fail(ErrorCode::kInvalidArgument, "nothing to measure: -p and -n are both 0");
  if (rows > kMostRows) {
    fail(ErrorCode::kInvalidArgument, "-p, -n, -d and -b make {} rows, the most is {}", rows,
         kMostRows);
  }
}

void measure(Generator& generator, const BenchOptions& o, int ranks, int warm_ups,
             BenchResult& row) {
  if (row.decode > 0) row.own = ranks * o.own;
  const bool decode = row.decode > 0;
  const int64_t tokens = row.prompt + row.decode;
  const int64_t chunk = decode ? 1 : generator.prefill_chunk();
  const auto before = generator.runner().approximation();
  Progress progress;
  progress.announce(row.name() + ": warming up");
  generator.advance(0, row.depth, generator.prefill_chunk(), row.batch);
  // Warm up. On a GPU a step's first run loads kernels, its second becomes a graph.
  for (int i = 0; i < warm_ups; ++i) {
    generator.advance(row.depth, decode ? std::min<int64_t>(3, tokens) : tokens, chunk, row.batch,
                      o.own);
  }
  for (int i = 0; i < o.repetitions; ++i) {
    progress.announce(fmt::format("{}: {} of {}", row.name(), i + 1, o.repetitions));
    const double start = steady_seconds();
    row.loop = generator.advance(row.depth, tokens, chunk, row.batch, o.own);
    row.seconds.push_back(steady_seconds() - start);
  }
  std::optional<Approximation> made = generator.runner().approximation();
  if (made && before) made->shares = made->shares - before->shares;
  if (made && made->shares.thinned()) row.approximate = std::move(made);
}

// Parameters of the embedding, which is a table and no product, unless the head shares it.
double table_parameters(const ModelConfig& c) {
  return c.tied_head ? 0 : static_cast<double>(c.V * c.C);
}

// Keys that a decode step attends to, at mid-way.
double keys_of(const BenchResult& row) {
  return static_cast<double>(row.depth) + static_cast<double>(row.decode) / 2;
}

// Bytes of the experts chosen by a step's tokens, for even choices.
double chosen_expert_bytes(const Model& model, int64_t tokens) {
  const auto& experts = model.config().experts;
  if (!experts) return 0;
  return static_cast<double>(model.expert_bytes()) *
         ops::experts_chosen(experts->E, experts->route.top_k, tokens) /
         static_cast<double>(experts->E);
}

// Weights once (a single row of the embedding), chosen experts, and each sequence's KV cache.
double decode_bytes(const Model& model, DType kv_dtype, const BenchResult& row) {
  const ModelConfig& c = model.config();
  const double embedding = c.tied_head ? 0 : static_cast<double>(model.weight_bytes("token_embd"));
  return static_cast<double>(model.weight_bytes() - model.expert_bytes()) - embedding +
         chosen_expert_bytes(model, row.batch + row.own) +
         (static_cast<double>(row.batch) * keys_of(row) +
          static_cast<double>(row.own * Generator::kOwnCached)) *
             static_cast<double>(c.layers * bytes_of(kv_dtype, c.cached_numbers()));
}

// Two operations per parameter and token, four per number in a query and its keys.
double decode_flops(const Model& model, const BenchResult& row) {
  const ModelConfig& c = model.config();
  return static_cast<double>(row.batch) *
         (2 * (static_cast<double>(model.active_parameters()) - table_parameters(c)) +
          4 * keys_of(row) * static_cast<double>(c.layers * c.Hq * c.D));
}

// The head computes the last token alone.
double prompt_flops(const Model& model, const BenchResult& row) {
  const ModelConfig& c = model.config();
  const auto n = static_cast<double>(row.prompt), cached = static_cast<double>(row.depth);
  const auto head = static_cast<double>(c.V * c.C);
  const double layers = static_cast<double>(model.active_parameters()) - table_parameters(c) - head;
  return n * 2 * layers + 2 * head +
         4 * n * (cached + (n + 1) / 2) * static_cast<double>(c.layers * c.Hq * c.D);
}

Roof measure_roof(const Generator& generator, const EngineConfig& config) {
  if (!config.device.cuda) return {measure_read_bandwidth(generator.threads() * config.tp), 0};
  const DeviceRates rates = measure_device_rates(config.device.first_gpu());
  const int gpus = config.device.num_gpus(config.tp);
  return {gpus * rates.read_bytes, gpus * rates.products};
}

Model open(const BenchOptions& o) {
  if (!o.shape.named()) {
    o.shape.require_none();
    return Model(o.path);
  }
  const ModelShape shape = o.shape.read();
  Progress progress;
  progress.announce("making random weights for " + o.shape.path());
  return Model(shape, 1);
}

void bench(const BenchOptions& o, job::Job* job) {
  check(o);
  const BenchFormat format = parse_bench_format(o.output);
  std::vector<BenchResult> rows = rows_of(o);
  Model model = open(o);
  if (follow(job, model)) return;
  print_remarks(model.config().remarks);
  ParallelRun parallel(o.parallel, {o.path, o.shape.path()}, job);
  EngineConfig config = parallel.engine_config();
  if (!config.device.cuda && o.shape.random() && model.weight_bytes() >= kLargeBytes) {
    std::fprintf(stderr,
                 "braid: %.1f GiB of random weights for %s: a row may take minutes on a CPU\n",
                 static_cast<double>(model.weight_bytes()) / (1 << 30), o.shape.path().c_str());
  }
  for (const BenchResult& row : rows) {
    config.max_context = std::max(config.max_context, row.depth + row.prompt + row.decode + 1);
    config.sequences = std::max(config.sequences, row.batch);
  }
  model.stretch(config.max_context);
  if (o.own > 0 && !config.sp) {
    fail(ErrorCode::kInvalidArgument, "--own: ranks have sequences of their own with --sp alone");
  }
  // Room for the ranks' own sequences.
  const int64_t own_tokens = Generator::kOwnCached + std::ranges::max(o.decodes) + kPageSize;
  config.max_context += config.tp * o.own * own_tokens;
  if (o.chunk > 0) config.prefill_chunk = o.chunk;
  if (o.no_communication && config.tp == 1) {
    fail(ErrorCode::kInvalidArgument,
         "--no-communication: one rank has none; --tp, --sp with --ranks, or GPUs make several");
  }
  config.communication = !o.no_communication;
  Generator generator(model, nullptr, config);
  BenchReport report(format, config, generator, model, measure_roof(generator, config));
  parallel.watch_cores();
  for (BenchResult& row : rows) {
    measure(generator, o, config.tp, config.device.cuda ? 2 : 1, row);
    if (row.decode > 0) row.bytes = decode_bytes(model, generator.kv_dtype(), row);
    row.flops = row.decode > 0 ? decode_flops(model, row) : prompt_flops(model, row);
    if (&row == rows.data()) parallel.announce();  // behind all that may refuse the work
    report.add(row);
  }
  report.finish();
  if (format == BenchFormat::table) parallel.report_cores();
  parallel.finish(generator);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measures prompt and decode speed");
  const auto options = std::make_shared<BenchOptions>();
  options->model.add_with_argument(*command);
  options->shape.add_to(*command);
  const auto add_list = [&](const char* names, std::vector<int64_t>& values, const char* help) {
    command->add_option(names, values, help)
        ->delimiter(',')
        ->default_str(std::to_string(values[0]));
  };
  add_list("-p", options->prompts,
           "tokens of the prompt (0: skip); several for a row each: 512,2048");
  add_list("-n", options->decodes, "tokens to decode (0: skip); also several");
  add_list("-b,--batch", options->batches, "sequences that are decoded together; also several");
  add_list("-d", options->depths, "tokens in the KV cache before; also several");
  command
      ->add_option("--own", options->own,
                   "with --sp: each rank decodes so many sequences of its own besides, behind 1024 "
                   "tokens")
      ->capture_default_str();
  command
      ->add_option("--chunk", options->chunk,
                   "tokens of the prompt in one step (0: 512, on a GPU 8192)")
      ->capture_default_str();
  command->add_option("-r", options->repetitions, "repetitions")->capture_default_str();
  command
      ->add_option("-o,--output", options->output,
                   "table, json (one object), jsonl or csv (a line for each row)")
      ->capture_default_str();
  command->add_flag_callback(
      "--json", [options] { options->output = "json"; }, "the same as --output json");
  command->add_flag(
      "--no-communication", options->no_communication,
      "communication does nothing: what free communication would give; wrong results");
  add_parallel(*command, options->parallel);
  add_sequence(*command, options->parallel);
  command->footer(
      "Examples:\n  braid bench -m model.gguf\n"
      "  braid bench -m model.gguf -p 512,2048 -n 64 -d 0,1024 --tp 2 --threads 1 -o csv\n"
      "  braid bench --config config.json --random-weights --device cuda -p 0 -d 1024 -b 1,16,32\n"
      "  braid bench --config config.json --random-weights --device cuda:0,1 --sp ulysses -p 8192");
  add_bench_attention(*command);
  add_bench_image(*command);
  add_bench_video(*command);
  add_bench_serve(*command);
  add_bench_trace(*command);
  command->require_subcommand(0, 1);
  command->callback([options, command] {
    if (!command->get_subcommands().empty()) return;
    options->model.rest(0);
    const bool shape = options->shape.named();
    if (shape ? options->model.named() : options->shape.random() && !options->model.named()) {
      throw CLI::RequiredError("one of --model and --config");
    }
    if (!shape) options->path = options->model.path();
    run_in_job(options->parallel.job, [&](job::Job* job) { bench(*options, job); });
  });
}

}  // namespace braid::app
