#include "braid/step_bench.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "braid/engine/absent_gpu.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/link_topology.h"
#include "braid/engine/parallel_choice.h"
#include "braid/engine/world.h"
#include "braid/options.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/simulated_steps.h"
#include "braid/step_rows.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

using Clock = std::chrono::steady_clock;

struct StepTimes {
  double median_ms = 0, least_ms = 0;  // 0: not measured
  std::optional<double> predicted_ms;
  double arena_gb = 0;
  std::string phases;
};

double ms_of_run(BenchedStep& step) {
  const auto start = Clock::now();
  step.run();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Table {
 public:
  Table(const StepFamily& family, const StepBenchOptions& options, const BenchPlace& place)
      : family_(family),
        options_(options),
        place_(place),
        kernels_(place.kernels()),
        prices_(place.profile().value_or(Profile{}), place.topology(), kernels_.get()) {
    if (options.figure != 0) {
      figure_ = paper_figure(options.figure);
    } else {
      figure_.rows = rows_of_modes(options.modes, options.schedule);
    }
    if (place.profile()) {
      one_cost_.emplace(*place.profile(), Topology{});
      cost_.emplace(*place.profile(), place.topology());
    }
  }

  void run() {
    const bool figure = options_.figure != 0;
    print(fmt::format(
        "{}\n| size | ranks | torus x ulysses x ring | step ms | least ms | times one rank |{} "
        "predicted ms | values GB |\n|---|---|---|---:|---:|---:|{}---:|---:|\n",
        family_.title, figure ? " times the first |" : "", figure ? "---:|" : ""));
    one_rank();
    if (place_.ranks() > 1) all_ranks();
    if (figure) {
      print(paper_line(options_.figure, figure_));
      bounds();
    }
    print(refused_ + kinds_);
  }

 private:
  void one_rank() {
    std::unique_ptr<BenchedStep> step;
    if (!options_.simulate_one) step = family_.make(place_.one(family_.random));
    for (size_t i = 0; i < family_.sizes.size(); ++i) {
      if (step) {
        const StepTimes times = time(*step, i, one_cost_);
        alone_.push_back(times.median_ms);
        print_row("one rank", {}, i, times, 0);
        if (options_.launches) add_kinds("one rank", i, *step);
        continue;
      }
      const PlannedForward plan = prices_.plan(family_.step(i));
      StepTimes times{.arena_gb = arena_gb(plan.schedules[0])};
      if (place_.profile()) times.predicted_ms = 1e3 * prices_.seconds(plan);
      alone_.push_back(times.predicted_ms.value_or(0));
      print_row("one rank", {}, i, times, 0);
    }
  }

  // Every row on the same ranks, whose weights are made once.
  void all_ranks() {
    struct Case {
      size_t row;
      SequenceMesh mesh;
    };
    std::vector<Case> cases;
    for (size_t i = 0; i < figure_.rows.size(); ++i) {
      unless_refused(i, [&] {
        for (SequenceMesh& mesh :
             meshes_of(figure_.rows[i], figure_.degrees, family_, 0, options_.degrees.request(),
                       place_.topology(), place_.profile() ? &prices_ : nullptr)) {
          cases.push_back({i, std::move(mesh)});
        }
      });
    }
    if (cases.empty()) return;
    NetworkConfig network = place_.all(family_.random);
    network.mesh = cases[0].mesh;
    for (const Case& c : cases) network.further.push_back(c.mesh);
    const auto step = family_.make(network);
    for (const Case& c : cases) {
      unless_refused(c.row, [&] { measure_on(*step, c.row, c.mesh); });
    }
  }

  // Of many rows, impossible ones are named below the table.
  void unless_refused(size_t row, const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      if (!is_impossible(options_, error)) throw;
      refused_ += fmt::format("{}: {}\n", figure_.rows[row].label, error.what());
    }
  }

  void measure_on(BenchedStep& step, size_t index, const SequenceMesh& mesh) {
    const StepRow& row = figure_.rows[index];
    step.divide_by(mesh, row.schedule);
    first_.resize(family_.sizes.size());
    most_.resize(family_.sizes.size());
    for (size_t i = 0; i < family_.sizes.size(); ++i) {
      const StepTimes times = time(step, i, cost_);
      double& first = first_[i];
      if (index == 0 && (first == 0 || times.median_ms < first)) first = times.median_ms;
      if (row.mode == SpMode::torus) most_[i] = std::max(most_[i], first / times.median_ms);
      print_row(row.label, mesh.degrees, i, times, first);
      if (options_.launches) add_kinds(row.label, i, step);
    }
  }

  // A step of seconds is spared further runs to warm up.
  StepTimes time(BenchedStep& step, size_t i, const std::optional<CostModel>& cost) {
    constexpr double kSlowMs = 3000;
    const auto start = Clock::now();
    step.begin(i);
    BoundNetwork& network = step.network();
    const double planned = seconds_since(start);
    double longest = 0;
    for (int n = 0; n < options_.warm_ups && longest < kSlowMs; ++n) {
      longest = std::max(longest, ms_of_run(step));
    }
    const double ready = seconds_since(start);
    std::vector<double> ms;
    for (int n = 0; n < options_.repetitions; ++n) ms.push_back(ms_of_run(step));
    const double timed = seconds_since(start);
    std::ranges::sort(ms);
    StepTimes times{.median_ms = ms[ms.size() / 2],
                    .least_ms = ms[0],
                    .arena_gb = arena_gb(network.executor(0).schedule())};
    if (cost) times.predicted_ms = 1e3 * network.predicted_seconds(*cost);
    times.phases = fmt::format(
        "{:.2f} s to plan and load, {:.2f} to warm up, {:.2f} timed, {:.2f} to simulate", planned,
        ready - planned, timed - ready, seconds_since(start) - timed);
    return times;
  }

  static double arena_gb(const Schedule& schedule) {
    return static_cast<double>(schedule.memory.arena_bytes) * 1e-9;
  }

  void print_row(const std::string& label, const SpDegrees& d, size_t i, const StepTimes& times,
                 double first) {
    const auto number = [](double x, const char* unit = "") {
      return x > 0 ? fmt::format("{:.2f}{}", x, unit) : "-";
    };
    std::string predicted = "-";
    if (times.predicted_ms) {
      predicted = number(*times.predicted_ms);
      if (times.median_ms > 0) {
        predicted += fmt::format(" ({:+.1f}%)", 100 * (*times.predicted_ms / times.median_ms - 1));
      }
    }
    const bool measured = times.median_ms > 0;
    const std::string times_first =
        options_.figure == 0
            ? ""
            : fmt::format(" {} |",
                          measured && first > 0 ? number(first / times.median_ms, "x") : "-");
    print(fmt::format("| {} | {} | {} x {} x {} | {} | {} | {} |{} {} | {:.2f} |\n",
                      family_.sizes[i], label, d.torus, d.ulysses, d.ring, number(times.median_ms),
                      number(times.least_ms), measured ? number(alone_[i] / times.median_ms) : "-",
                      times_first, predicted, times.arena_gb));
    if (options_.phases && measured) {
      print_remarks({fmt::format("{}, {}: {}", label, family_.sizes[i], times.phases)});
    }
  }

  void add_kinds(const std::string& label, size_t i, BenchedStep& step) {
    kinds_ += fmt::format("{}, {}, rank 0:\n{}", label, family_.sizes[i], kinds_of(step.network()));
  }

  // P ranks take at least 1 / P of a single rank's time: no method beats the first row by more.
  void bounds() {
    for (size_t i = 0; i < first_.size(); ++i) {
      print(bound_line(family_.sizes[i], alone_[i], options_.simulate_one, place_.ranks(),
                       first_[i], figure_.rows[0].label, most_[i]));
    }
  }

  const StepFamily& family_;
  const StepBenchOptions& options_;
  const BenchPlace& place_;
  const std::unique_ptr<KernelCatalog> kernels_;
  const StepPrices prices_;
  Figure figure_;
  std::optional<CostModel> one_cost_, cost_;
  std::vector<double> alone_;         // ms on a single rank, by size
  std::vector<double> first_, most_;  // ms in the first row at its best; torus times the first
  std::string refused_, kinds_;
};

}  // namespace

std::string kinds_of(BoundNetwork& network) {
  network.run_timed();  // loads
  const std::vector<LaunchTime> times = network.run_timed();
  const Executor& executor = network.executor(0);
  std::map<std::string, std::pair<int, double>> kinds;
  for (size_t i = 0; i < times.size(); ++i) {
    const Launch& launch = executor.schedule().launches[i];
    auto& [count, ms] = kinds[fmt::format("{} {}", to_string(launch.stream), launch.kernel.name)];
    count += 1;
    ms += 1e3 * (times[i].end - times[i].begin);
  }
  std::string out;
  for (const auto& [kind, sum] : kinds) {
    out += fmt::format("  {:>9.3f} ms {:>5} x {}\n", sum.second, sum.first, kind);
  }
  return out;
}

void StepBenchOptions::add_to(CLI::App& command, const std::string& example) {
  command.add_option("--random-weights", weights, "the shape: " + example)->required();
  command.add_option("--figure", figure,
                     "a figure of StreamFusion with the paper's sizes: 7, 8, 10; 9 and 12 time "
                     "attention alone");
  command.add_option("--tokens", tokens, "of figures 9 and 12: lengths in place of the paper's")
      ->delimiter(',');
  command.add_option("--blocks", blocks, "this many blocks of each kind, in place of a whole step");
  command.add_option("--device", device, "cpu, cuda, or cuda:0,1: a rank on each GPU")
      ->capture_default_str();
  command.add_option("-t,--threads", threads, "threads of each rank (0: cores / ranks)");
  command.add_option("--sp", modes, "ring, ulysses, usp, tas, torus, several with commas, or all")
      ->capture_default_str();
  command.add_option("--ranks", ranks, "ranks (default: one for each GPU of --device)");
  degrees.add_to(command, "");
  add_job_source(command, job);
  command.add_option("--schedule", schedule, "a strategy")->capture_default_str();
  command.add_option("--machines", machines,
                     "[RACKSx]MACHINESxDEVICES in place of --ranks; machines are emulated");
  command.add_option("--link-gbps", link_gbps, "GB/s between machines; 0: as it is");
  command.add_option("--link-us", link_us, "latency between machines");
  command.add_option("-r", repetitions, "repetitions; the median counts")->capture_default_str();
  command.add_option("--warm-ups", warm_ups, "runs before those that are timed")
      ->capture_default_str();
  command.add_flag("--phases", phases, "say how long planning, warming up and timing took");
  command.add_flag("--simulate-one", simulate_one, "simulate one rank, in place of timing a step");
  command.add_flag("--launches", launches, "print rank 0's time by kernel");
  auto* simulation = command.add_option("--profile", profile,
                                        "a profile (h100, h200, a100, a file): simulate the step "
                                        "on --machines or --ranks, with no device");
  command.add_flag("--json", json, "of a simulation: a line of JSON in place of each table")
      ->needs(simulation);
  command.add_flag("--decode", decode, "time decoding, too, on one rank and over all");
  command.add_flag("--decode-only", decode_only, "time decoding, and no step");
  for (const char* measured : {"--device", "--threads", "-r", "--warm-ups", "--phases",
                               "--simulate-one", "--launches", "--decode", "--decode-only"}) {
    simulation->excludes(command.get_option(measured));
  }
}

void StepBenchOptions::check() {
  decode = decode || decode_only;
  require_between("-r", repetitions, 1, 1000);
  require_between("--warm-ups", warm_ups, 0, 1000);
  require_between("--ranks", ranks, 0, 1024);
  require_between("--blocks", blocks, 0, 1000);
  if (figure != 0) paper_figure(figure);
  find_strategy(schedule);  // fails on an unknown name
  for (int64_t length : tokens) {
    require_between("--tokens", length, 4, 1 << 24);
    if (length % 4 == 0) continue;
    fail(ErrorCode::kInvalidArgument, "--tokens is {}, wanted is a multiple of 4", length);
  }
}

BenchPlace::BenchPlace(const StepBenchOptions& o) {
  simulated_ = !o.profile.empty();
  if (simulated_ && o.machines.empty() && o.ranks == 0) {
    fail(ErrorCode::kInvalidArgument,
         "--profile simulates ranks: wanted --machines MACHINESxDEVICES or --ranks N");
  }
  // The mode named here is for devices, ranks and links alone; each row has a schedule of its own.
  SequenceRequest sequence{.mode = "ring", .machines = o.machines};
  if (o.ranks != 0) sequence.ranks = o.ranks;
  const int threads = simulated_ ? 1 : o.threads;
  engine_ = choose_parallel({.device = simulated_ ? "cpu" : o.device,
                             .engine = {.threads = threads, .schedule = o.schedule},
                             .link_gbps = o.link_gbps,
                             .link_us = o.link_us,
                             .sequence = sequence},
                            terminal_notes())
                .engine;
  topology_ = topology_of(engine_.links, engine_.tp);
  // A simulation's time grows with the cube of the ranks.
  if (simulated_) require_between("the number of ranks", engine_.tp, 1, 256);
  profile_ = simulated_ ? load_profile(o.profile) : known_profile(engine_);
}

DType BenchPlace::dtype() const {
  if (simulated_) return profile_->activations;
  return usual_dtype(engine_.device);
}

std::unique_ptr<KernelCatalog> BenchPlace::kernels() const {
  if (simulated_) return kernels_of_absent_gpu(*profile_);
  return engine_.device.cuda ? kernels_of_gpu(engine_.device.first_gpu()) : nullptr;
}

NetworkConfig BenchPlace::all(const RandomWeights* random) const {
  return {.threads = threads_of(engine_),
          .links = engine_.links,
          .device = engine_.device,
          .dtype = dtype(),
          .random = random};
}

NetworkConfig BenchPlace::one(const RandomWeights* random) const {
  NetworkConfig network = all(random);
  network.threads *= engine_.tp;
  network.links = {};
  if (network.device.cuda) network.device.ids = {engine_.device.first_gpu()};
  return network;
}

std::string BenchPlace::description() const {
  if (simulated_) {
    const Link& link = topology_.machines > 1 ? topology_.cluster_link : topology_.machine_link;
    const std::string links =
        topology_.emulated ? fmt::format(", links of {:g} GB/s", link.bytes_per_second / 1e9) : "";
    return fmt::format("{}, {} ranks as {}{}, simulated from the profile '{}'", name(dtype()),
                       engine_.tp, sizes_of(topology_), links, profile_->name);
  }
  return fmt::format("random weights in {}, {} ranks as {}{}, {}", name(dtype()), engine_.tp,
                     to_string(topology_), topology_.emulated ? ", links emulated" : "",
                     engine_.device.cuda ? gpu_name(engine_.device.first_gpu()) : "CPU");
}

void print_steps(const StepFamily& family, const StepBenchOptions& options,
                 const BenchPlace& place) {
  if (place.simulated()) return print_simulated(family, options, place);
  Table(family, options, place).run();
}

std::vector<float> normals(uint64_t seed, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  TorchGenerator(seed).normals(out);
  return out;
}

}  // namespace braid::app
