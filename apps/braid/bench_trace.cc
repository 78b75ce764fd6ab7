// Replays a load of requests: by the simulator on absent devices, or on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>

#include "braid/bench_trace.h"
#include "braid/engine/trace/trace_engine.h"
#include "braid/engine/trace/trace_policy.h"
#include "braid/io/text_file.h"
#include "braid/io/trace_loads.h"
#include "braid/model_option.h"
#include "braid/number_list.h"
#include "braid/options.h"
#include "braid/shape_option.h"
#include "braid/step_lines.h"
#include "braid/text_io.h"
#include "braid/trace_engine_steps.h"
#include "braid/trace_report.h"

namespace braid::app {
namespace {

// The chunks among which `best` looks.
constexpr int64_t kChunks[] = {256, 512, 1024, 2048, 4096, 8192};
constexpr const char* kKeep = "0.5";  // of sp-levels
constexpr double kKeptShare = 0.9;    // of the requests, for --find-rate
// Groups of options.
constexpr const char* kSimulated = "Simulated, on devices that are not there";
constexpr const char* kHere = "On this machine";

struct BenchTraceOptions {
  std::string trace;
  TraceLoad load;
  TraceScale scale;
  int64_t long_tokens = 32768;
  double ttft_ms = 0, tbt_ms = 0;
  bool find_rate = false, json = false;
  // Simulated.
  TraceCluster cluster;
  std::vector<std::string> policies = {"chunked", "sp", "sp-apart", "sp-levels"};
  std::vector<std::string> chunks = {"256", "best"};
  int64_t sp_step = 0;
  // On this machine.
  ModelOption model;
  ShapeOption shape;
  std::string tokenizer;  // of a shape: a model's
  ParallelRequest parallel;
  std::string sp;
  int ranks = 0;
  std::string steps;  // a file
  // Both.
  std::string profile;
  std::string keep;  // empty: kKeep for sp-levels, exact on this machine

  bool simulated() const { return !profile.empty() && !model.named() && !shape.random(); }
  TraceLimits limits() const { return {1e-3 * ttft_ms, 1e-3 * tbt_ms}; }
};

// A fresh source of the load, `rate` times as dense as asked.
TraceSource source_of(const BenchTraceOptions& o, double rate = 1) {
  TraceScale scale = o.scale;
  scale.rate *= rate;
  return scaled(o.trace.empty() ? generated_trace(o.load) : open_trace(o.trace), scale);
}

TraceResult result_of(const BenchTraceOptions& o, std::string policy, std::string how,
                      const ReplayConfig& config, TraceReplay replay) {
  TraceResult result{.policy = std::move(policy), .how = std::move(how), .sets = config.sets};
  result.summary = summarize(replay, config, o.limits());
  const auto n = static_cast<double>(replay.requests.size());
  if (n > 1) result.rate = (n - 1) / std::max(replay.requests.back().arrival, 1e-9);
  result.replay = std::move(replay);
  return result;
}

// The highest rate, in requests a second to 5%, that keeps kKeptShare within the limits; infinity
// if the load is too short to find a limit.
double most_kept(const BenchTraceOptions& o, const ReplayConfig& config, StepTimes& times,
                 double rate) {
  const auto keeps = [&](double factor) {
    const TraceReplay r = replay_trace(source_of(o, factor), config, times);
    return summarize(r, config, o.limits()).kept >= kKeptShare;
  };
  double low = 1.0 / 64, high = 64;
  if (!keeps(low)) return 0;
  if (keeps(high)) return std::numeric_limits<double>::infinity();
  while (high / low > 1.05) {
    const double middle = std::sqrt(low * high);
    (keeps(middle) ? low : high) = middle;
  }
  return low * rate;
}

TraceResult simulate(const BenchTraceOptions& o, const TracePolicy& policy) {
  TraceCluster cluster = o.cluster;
  cluster.config = o.shape.path();
  cluster.profile = o.profile;
  cluster.context = o.parallel.engine.max_context;
  if (!o.sp.empty() && o.sp != "auto") cluster.sp = parse_sp_mode(o.sp);
  const SimulatedPolicy made = simulate_policy(cluster, policy);
  const ReplayConfig config{
      .scheduler = made.scheduler, .sets = made.sets, .long_tokens = o.long_tokens};
  TraceResult result = result_of(o, policy.name(), made.how, config,
                                 replay_trace(source_of(o), config, *made.times));
  if (o.find_rate) result.kept_most = most_kept(o, config, *made.times, result.rate);
  return result;
}

TraceResult best_chunk(const BenchTraceOptions& o) {
  BenchTraceOptions once = o;
  once.find_rate = false;
  std::optional<TraceResult> best;
  int64_t taken = 0;
  for (int64_t chunk : kChunks) {
    TraceResult r = simulate(once, {.kind = TracePolicyKind::chunked, .step_tokens = chunk});
    if (!best || r.summary.all.whole.mean < best->summary.all.whole.mean) {
      best = std::move(r);
      taken = chunk;
    }
  }
  if (!o.find_rate) return *std::move(best);
  return simulate(o, {.kind = TracePolicyKind::chunked, .step_tokens = taken});
}

std::vector<TraceResult> simulate_all(const BenchTraceOptions& o) {
  std::vector<TraceResult> results;
  for (const std::string& name : o.policies) {
    if (name == "sp") {
      results.push_back(simulate(o, {.kind = TracePolicyKind::sp, .step_tokens = o.sp_step}));
    } else if (name == "sp-apart") {
      results.push_back(simulate(o, {.kind = TracePolicyKind::sp_apart, .step_tokens = o.sp_step}));
    } else if (name == "sp-levels") {
      results.push_back(
          simulate(o, {.kind = TracePolicyKind::sp_levels,
                       .step_tokens = o.sp_step,
                       .keep = parse_numbers<double>("--keep", o.keep.empty() ? kKeep : o.keep)}));
    } else if (name != "chunked") {
      fail(ErrorCode::kInvalidArgument,
           "--policy names '{}', wanted chunked, sp, sp-apart or sp-levels", name);
    } else {
      for (const std::string& text : o.chunks) {
        if (text == "best") {
          results.push_back(best_chunk(o));
          continue;
        }
        int64_t chunk = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chunk);
        if (error != std::errc() || end != text.data() + text.size()) {
          fail(ErrorCode::kInvalidArgument, "--chunk has '{}', wanted tokens or best", text);
        }
        require_between("--chunk", chunk, 64, kMostTokens);
        results.push_back(simulate(o, {.kind = TracePolicyKind::chunked, .step_tokens = chunk}));
      }
    }
  }
  return results;
}

std::unique_ptr<Engine> open_engine(const BenchTraceOptions& o, const RequestLimits& limits) {
  if (!o.shape.random()) {
    return Engine::open({.model = o.model.path(), .parallel = o.parallel, .limits = limits});
  }
  std::unique_ptr<LoadedModel> loaded = o.shape.opener(o.tokenizer)();
  return std::make_unique<Engine>(std::move(loaded), choose_parallel(o.parallel).engine, limits);
}

std::vector<TraceResult> measure(BenchTraceOptions& o) {
  if (!o.sp.empty() || !o.keep.empty()) {
    SequenceRequest sequence{.mode = o.sp,
                             .thinning = {.keep = parse_numbers<double>("--keep", o.keep)}};
    if (o.ranks > 0) sequence.ranks = o.ranks;
    o.parallel.sequence = sequence;
  }
  RequestLimits limits;
  limits.scheduler.max_step_tokens = 0;
  FittedTimes times;  // outlives the engine, as `sums`
  StepSums sums;
  StepLines lines;
  std::string text;  // of all lines
  if (!o.steps.empty()) require_writable("--steps", o.steps);
  limits.on_step = [&](const Step& step, double seconds) {
    const std::vector<TimedRow> rows = timed_rows(step);
    times.add(rows, seconds);
    sums.add(rows, seconds);
    lines.add(rows, seconds);
  };
  const auto engine = open_engine(o, limits);
  warm_up(*engine);
  times.clear();
  lines.clear();
  sums = {};
  EngineReplay real = replay_on_engine(*engine, source_of(o), o.long_tokens);
  real.replay.sums = sums;
  const ReplayConfig config{.scheduler = real.scheduler,
                            .depth = real.depth,
                            .between = real.between,
                            .long_tokens = o.long_tokens};
  const int ranks = engine->config().tp;
  const std::string how = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  std::vector<TraceResult> results;
  const auto add = [&](std::string policy, TraceReplay replay) {
    results.push_back(result_of(o, std::move(policy), how, config, std::move(replay)));
    results.back().between = real.between;
    results.back().approximate = real.approximate;
    text += lines.text(results.back().policy);
    lines.clear();
  };
  const auto simulated = [&](StepTimes& of) {
    NotedTimes noted(of, lines);
    return replay_trace(source_of(o), config, noted);
  };
  add("this machine", std::move(real.replay));
  add("its steps simulated", simulated(times));
  if (!o.profile.empty()) {
    PlannedTimes by_profile = profile_times(*engine, o.profile);
    add("steps by the profile", simulated(by_profile));
  }
  if (!o.steps.empty()) write_file(o.steps, text);
  return results;
}

void check(const BenchTraceOptions& o) {
  const auto above = [](const char* option, double value, double least) {
    if (!(value >= least && value <= 1e9)) {
      fail(ErrorCode::kInvalidArgument, "{} is {}, wanted {} to 1e9", option, value, least);
    }
  };
  above("--scale", o.scale.rate, 1e-6);
  above("--lengths", o.scale.lengths, 1e-6);
  above("--ttft", o.ttft_ms, 0);
  above("--tbt", o.tbt_ms, 0);
  require_between("--limit", o.scale.limit, 0, int64_t{1} << 30);
  require_between("-n", o.load.requests, 1, int64_t{1} << 30);
  require_between("--long", o.long_tokens, 1, kMostTokens);
  require_between("--ctx", o.parallel.engine.max_context, 0, kMostTokens);
  require_between("--sp-step", o.sp_step, 0, kMostTokens);
  const auto divides = [](const std::string& policy) { return policy != "chunked"; };
  if (o.simulated() && !o.sp.empty() && std::ranges::none_of(o.policies, divides)) {
    fail(ErrorCode::kInvalidArgument, "--sp goes with --policy sp, sp-apart or sp-levels");
  }
  if (o.simulated() && !o.keep.empty() && std::ranges::count(o.policies, "sp-levels") == 0) {
    fail(ErrorCode::kInvalidArgument, "--keep goes with --policy sp-levels");
  }
  require_between("--max-running", o.cluster.max_running, 1, 1 << 16);
  if (!(o.cluster.memory_gb > 0 && o.cluster.memory_gb <= 1e6)) {
    fail(ErrorCode::kInvalidArgument, "--memory is {} GB, wanted above 0 to 1000000",
         o.cluster.memory_gb);
  }
  if (o.find_rate && o.ttft_ms == 0 && o.tbt_ms == 0) {
    fail(ErrorCode::kInvalidArgument, "--find-rate wants limits: --ttft, --tbt");
  }
  const bool shape = o.shape.named();
  if (o.model.named() && shape) fail(ErrorCode::kInvalidArgument, "one of --model and --config");
  if (!shape) o.shape.require_none();
  if (shape ? !o.simulated() && !o.shape.random() : o.simulated()) {
    fail(ErrorCode::kInvalidArgument, "--profile, of devices to simulate, goes with --config");
  }
  if (!shape && !o.tokenizer.empty()) {
    fail(ErrorCode::kInvalidArgument, "--tokenizer goes with --config, not with a model");
  }
}

// An option of the other way to replay would be passed over.
void check_groups(const CLI::App& command, bool simulated) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const std::string& group = option->get_group();
    if (!simulated && group == kSimulated) {
      fail(ErrorCode::kInvalidArgument,
           "{} goes with --profile, which simulates devices: without it, or with a model, this "
           "machine replays",
           option->get_name());
    }
    if (simulated && group == kHere) {
      fail(ErrorCode::kInvalidArgument, "{} is for this machine, and --profile simulates others",
           option->get_name());
    }
  }
}

void bench_trace(BenchTraceOptions& o) {
  const std::vector<TraceResult> results = o.simulated() ? simulate_all(o) : measure(o);
  if (!o.json) return print(trace_tables(results, o.long_tokens) + "\n");
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (const TraceResult& r : results) report.push_back(to_json(r));
  print(json_text(report, 2) + "\n");
}

void add_cluster(CLI::App& command, BenchTraceOptions& o) {
  TraceCluster& c = o.cluster;
  const auto add = [&](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->group(kSimulated);
  };
  add("--machines", c.machines, "[RACKSx]MACHINESxDEVICES")->capture_default_str();
  add("--set", c.set, "[RACKSx]MACHINESxDEVICES that compute a step together")
      ->capture_default_str();
  add("--memory", c.memory_gb, "GB that a device has for the model")->capture_default_str();
  add("--max-running", c.max_running, "requests of a set at once")->capture_default_str();
  add("--policy", o.policies, "chunked, sp, sp-apart, sp-levels, with commas: see the footer")
      ->delimiter(',')
      ->default_str("chunked,sp,sp-apart,sp-levels");
  add("--chunk", o.chunks, "of chunked: tokens of a step, or best: of 256 to 8192 by mean E2E")
      ->delimiter(',')
      ->default_str("256,best");
  add("--sp-step", o.sp_step, "of sp: tokens of a prompt in a step (0: as many as fit)")
      ->capture_default_str();
  command
      .add_flag("--find-rate", o.find_rate,
                "also the most requests a second of which 90% are within the limits")
      ->group(kSimulated);
}

void add_machine(CLI::App& command, BenchTraceOptions& o) {
  const auto add = [&](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->group(kHere);
  };
  for (const char* name : {"--random-weights", "--weights", "--layers"}) {
    command.get_option(name)->group(kHere);
  }
  add("--tokenizer", o.tokenizer, "of random weights: a model, whose tokenizer is taken");
  add("--device", o.parallel.device, "auto, cpu, cuda, or cuda:0,1")->capture_default_str();
  add("--tp", o.parallel.engine.tp, "ranks that divide the weights")->capture_default_str();
  add("--ranks", o.ranks, "with --sp: ranks");
  add("--threads", o.parallel.engine.threads, "of each rank (0: cores / ranks)")
      ->capture_default_str();
  add("--steps", o.steps, "a file for a line of JSON for each step, measured and simulated")
      ->type_name("FILE");
}

}  // namespace

void add_bench_trace(CLI::App& bench) {
  auto* command = bench.add_subcommand("trace", "Replays a load of many requests");
  const auto o = std::make_shared<BenchTraceOptions>();
  o->model.add_to(*command);
  o->shape.add_to(*command);
  command->add_option("--profile", o->profile,
                      "a name or a .json file: with --config alone devices to simulate; with a "
                      "model the prices for a simulation beside this machine's run");
  command->add_option("TRACE", o->trace,
                      "Mooncake's JSONL or Azure's CSV; without, a load is made");
  command
      ->add_option("--load", o->load.mix,
                   "needlebench, bookcorpus, conversation, or a mix: conversation=9,bookcorpus=1")
      ->capture_default_str();
  command->add_option("--rate", o->load.rate, "of --load: requests a second (Poisson)")
      ->capture_default_str();
  command->add_option("-n", o->load.requests, "of --load: requests")->capture_default_str();
  command->add_option("--seed", o->load.seed, "of --load")->capture_default_str();
  command->add_option("--scale", o->scale.rate, "arrivals so many times as dense")
      ->capture_default_str();
  command->add_option("--lengths", o->scale.lengths, "lengths times this, without shared blocks")
      ->capture_default_str();
  command->add_option("--limit", o->scale.limit, "the first requests only (0: all)")
      ->capture_default_str();
  command->add_option("--long", o->long_tokens, "prompts from so many tokens on are long")
      ->capture_default_str();
  command->add_option("--ttft", o->ttft_ms, "limit in ms to the first token (0: none)")
      ->capture_default_str();
  command
      ->add_option("--tbt", o->tbt_ms, "limit in ms between tokens, in a request's mean (0: none)")
      ->capture_default_str();
  command
      ->add_option("--ctx", o->parallel.engine.max_context, "tokens of a sequence (0: the model's)")
      ->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON array, an object for each policy");
  command->add_option("--sp", o->sp,
                      "how ranks divide the tokens of a prompt: ring, ulysses, usp, tas, torus, or "
                      "auto; simulated: auto, the fastest at each length");
  command
      ->add_option("--keep", o->keep,
                   "approximate: the share of a prompt's far keys that attention reads, by level; "
                   "simulated: of sp-levels, 0.5 unless given")
      ->type_name(kNumbers);
  add_cluster(*command, *o);
  add_machine(*command, *o);
  command->footer(
      "Policies:\n"
      "  chunked    weights divided; chunks of prompts share steps with decodes\n"
      "  sp         prompts divided by tokens; a rank makes each answer, with all its keys\n"
      "  sp-apart   the same, keys stay on their ranks and queries go to them\n"
      "  sp-levels  the same with level attention in prompts: approximate\n"
      "Examples:\n"
      "  braid bench trace --load conversation --rate 4 --config configs/llama-3.1-8b.json "
      "--machines 8x8 --profile a100\n"
      "  braid bench trace conversation_trace.jsonl --limit 50 --lengths 0.02 --device cpu --tp 2\n"
      "  braid bench trace -m MODEL --load needlebench --device cuda:0,1 --sp ring --keep 0.5");
  command->callback([o, command, &bench] {
    require_no_options(bench, "trace");
    check(*o);
    check_groups(*command, o->simulated());
    bench_trace(*o);
  });
}

}  // namespace braid::app
