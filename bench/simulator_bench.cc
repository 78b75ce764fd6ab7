// simulator_bench MODEL: real and simulated step times of a model side by side, on the CPU backend.
// Without --profile it calibrates first.
// simulator_bench: what one simulation costs, Llama-3-8B's shape on 8 ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/calibrate.h"
#include "braid/engine/runner.h"
#include "braid/engine/timed_step.h"
#include "braid/model/model_shape.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr int64_t kPageSize = 64;

struct Workload {
  const char* name;
  int64_t tokens, cached;
  int runs;
};
constexpr Workload kWorkloads[] = {{"decode at depth 0", 1, 0, 41},
                                   {"decode at depth 1024", 1, 1024, 41},
                                   {"prefill of 128", 128, 0, 11},
                                   {"prefill of 512", 512, 0, 7},
                                   {"prefill of 512 at depth 1024", 512, 1024, 5}};

struct Options {
  std::string model, profile, schedule = "sequential";
  int tp = 1, threads = 1;
  double link_gbps = 0, link_us = 0;
  int rounds = 1;
  bool kinds = false;
};
using Ratios = std::map<std::string, std::vector<double>>;  // simulated / real, by workload

void compare(const Model& model, const Profile& profile, const Options& o, Ratios& ratios) {
  RunnerConfig config{.tp = o.tp, .threads = o.threads};
  config.schedule = o.schedule;
  if (o.link_gbps > 0) config.links.machine_link = Link{1e9 * o.link_gbps, 1e-6 * o.link_us};
  config.cache = {.pages = 32,
                  .page_size = kPageSize,
                  .pages_per_sequence = 32,
                  .kv_dtype = model.default_kv_dtype()};
  config.on_step = [](const Runner&) {};
  Runner runner(model, config);
  const CostModel costs(profile, runner.planner().topology());
  std::printf("tp %d, %d threads, %s, link %g GB/s + %g us (%s)\n", o.tp, o.threads,
              o.schedule.c_str(), o.link_gbps, o.link_us, profile.device.c_str());
  for (const Workload& w : kWorkloads) {
    Batch batch(kPageSize);
    std::vector<int32_t> tokens(static_cast<size_t>(w.tokens), 42), pages(32);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    batch.add(tokens, w.cached, pages, 1);
    std::vector<double> real;
    std::vector<std::vector<double>> launches;
    runner.run(batch);
    for (int i = 0; i < w.runs; ++i) {
      const auto start = std::chrono::steady_clock::now();
      runner.run(batch);
      real.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      const auto times = runner.last_step(0).times;
      launches.resize(times.size());
      for (size_t t = 0; t < times.size(); ++t) launches[t].push_back(times[t].seconds());
    }
    Plan plan;
    const std::span<const Work> works = runner.last_works();
    for (int r = 0; r < o.tp; ++r) {
      const Runner::Step step = runner.last_step(r);
      plan.programs.push_back(step.executor->program());
      plan.schedules.push_back(step.executor->schedule());
    }
    const SimulatedStep step = simulate(plan, works, costs);
    const double seconds = median(real);
    std::printf("  %-30s real %9.3f ms  simulated %9.3f ms  ratio %.3f\n", w.name, seconds * 1e3,
                step.seconds * 1e3, step.seconds / seconds);
    ratios[w.name].push_back(step.seconds / seconds);
    if (!o.kinds) continue;
    std::map<std::string, std::pair<double, double>> kinds;
    for (size_t t = 0; t < launches.size(); ++t) {
      const Launch& launch = plan.schedules[0].launches[t];
      const Op& op = plan.schedules[0].op(plan.programs[0], launch);
      auto& [measured, simulated] = kinds[fmt::format(
          "{} {}", op.def->kind,
          op.inputs.size() > 1 ? to_string(plan.programs[0].value(op.inputs[1]).type) : "")];
      measured += median(launches[t]);
      simulated += step.times[0][t].seconds();
    }
    for (const auto& [kind, sum] : kinds) {
      std::printf("      %-50s real %9.1f us  simulated %9.1f us  ratio %.2f\n", kind.c_str(),
                  sum.first * 1e6, sum.second * 1e6, sum.second / sum.first);
    }
  }
}

// Microseconds of a simulation of two micro-batches on 8 H200.
void measure_speed() {
  const ModelShape shape = read_model_shape(BRAID_SOURCE_DIR "/configs/llama-3-8b.json");
  const NullBackend backend;
  constexpr int kRanks = 8;
  Topology topology;
  topology.devices = kRanks;
  const ForwardPlanner planner([&](const ForwardShape& s) { return shape.forward(s); },
                               {.pages = 4096, .page_size = 64, .pages_per_sequence = 128},
                               std::vector<const KernelCatalog*>(kRanks, &backend.catalog()),
                               topology);
  const CostModel model(load_profile("h200"), topology);
  for (const std::string& name : strategy_names()) {
    const auto strategy = find_strategy(name);
    const SequenceInfo sequence = {.tokens = 4096, .cached = 0, .scored = 1};
    const BatchInfo info = {{&sequence, 1}, sequence.tokens, kRanks};
    ContextKey key;
    std::vector<Work> works;
    for (const Range& range : strategy->split(info)) {
      const bool first = range.begin == 0;
      key.micro_batches.push_back({{range.size(), 1, 1}, !first});
      works.push_back({.extents = key.micro_batches.back().capacity,
                       .attended = (range.begin + range.end) * range.size() / 2,
                       .kv_tokens = range.end});
    }
    const PlannedForward forward = planner.plan(*strategy, strategy->layout(info), key);
    std::vector<double> samples;
    SimulatedStep step;
    for (int i = 0; i < 21; ++i) {
      const auto start = std::chrono::steady_clock::now();
      step = simulate(forward, works, model);
      samples.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::printf("%-16s %zu launches x %d ranks: simulated in %.0f us; step %.3f ms\n", name.c_str(),
                forward.schedules[0].launches.size(), kRanks, median(samples) * 1e6,
                step.seconds * 1e3);
  }
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::Options o;
  CLI::App app("Real and simulated step times side by side");
  app.add_option("model", o.model, "a .gguf file or a Hugging Face folder");
  app.add_option("--profile", o.profile, "name or path (default: calibrate)");
  app.add_option("--tp", o.tp, "ranks");
  app.add_option("--threads", o.threads, "threads of each rank");
  app.add_option("--schedule", o.schedule, "strategy");
  app.add_option("--link-gbps", o.link_gbps, "emulated links");
  app.add_option("--link-us", o.link_us, "their latency");
  app.add_option("--rounds", o.rounds, "times to calibrate and measure");
  app.add_flag("--kinds", o.kinds, "by kind of op");
  CLI11_PARSE(app, argc, argv);
  try {
    if (o.model.empty()) {
      braid::measure_speed();
      return 0;
    }
    const braid::Model model(o.model);
    braid::Ratios ratios;
    for (int i = 0; i < o.rounds; ++i) {
      const braid::Profile profile = o.profile.empty()
                                         ? braid::calibrate_cpu({.threads = o.threads})
                                         : braid::load_profile(o.profile);
      braid::compare(model, profile, o, ratios);
    }
    if (o.rounds == 1) return 0;
    std::printf("simulated / real, median (lowest - highest) of %d rounds\n", o.rounds);
    for (auto& [name, list] : ratios) {
      std::ranges::sort(list);
      std::printf("  %-30s %.2f (%.2f - %.2f)\n", name.c_str(), braid::median(list), list.front(),
                  list.back());
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
