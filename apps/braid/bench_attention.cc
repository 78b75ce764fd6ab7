// braid bench attention: the modes of sequence-parallel attention side by side, predicted for any
// cluster from a profile, or measured on CPU ranks of this process or on GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "braid/backend/device_spec.h"
#include "braid/commands.h"
#include "braid/engine/attention/attention_cuda.h"
#include "braid/engine/attention/attention_job.h"
#include "braid/engine/attention/attention_modes.h"
#include "braid/engine/cluster_description.h"
#include "braid/fabric/local/local_fabric.h"
#include "braid/job_options.h"
#include "braid/options.h"
#include "braid/schedule/mode_bound.h"
#include "braid/schedule/schedule_bound.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/timeline_svg.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

using namespace attention_modes;

struct AttentionShape {
  std::string_view name;
  int64_t tokens;
  int64_t text;  // joint prefix
  int64_t heads;
  int64_t head_dim;
};

// A token is 16 x 16 pixels; in a video, also four frames at 8 frames/s (768 x 1360).
constexpr AttentionShape kShapes[] = {
    {"flux-3072", 192 * 192, 512, 24, 128},
    {"flux-4096", 256 * 256, 512, 24, 128},
    {"cogvideox-20s", 41 * 48 * 85, 226, 24, 64},
    {"cogvideox-40s", 81 * 48 * 85, 226, 24, 64},
};

// When each stage of rank 0 ran, in microseconds from the first.
std::string timeline(const ModePlan& plan, std::span<const LaunchTime> times) {
  std::string out;
  double first = INFINITY;
  for (const LaunchTime& t : times) first = std::min(first, t.begin);
  for (size_t i = 0; i < times.size(); ++i) {
    const Launch& launch = plan.schedules[0].launches[i];
    const Op& op = plan.schedules[0].op(plan.programs[0], launch);
    out += fmt::format("  {:>10.1f} {:>10.1f}  {:<8} {:<14} {} {{{}}}\n",
                       (times[i].begin - first) * 1e6, (times[i].end - first) * 1e6,
                       to_string(launch.stream), op.scope, op.def->kind, to_string(op.attrs));
  }
  return out;
}

std::string bytes_cell(const ModeReport& r, LinkClass link) {
  const auto i = static_cast<size_t>(link);
  return fmt::format("{:.4g} / {:.4g}", r.bytes[i] / 1e6, r.analytic[i] / 1e6);
}

using Reports = std::vector<std::pair<SpMode, ModeReport>>;

// A picture of all modes: all ranks up to eight, otherwise the first machine's.
void write_plot(const std::string& path, const Reports& reports) {
  std::vector<Timeline> timelines;
  for (const auto& [mode, report] : reports) {
    Timeline& timeline = timelines.emplace_back();
    timeline.title = fmt::format("{}, {}", to_string(mode), to_string(report.degrees));
    const Topology& topology = report.plan->mesh.topology;
    const int ranks = topology.ranks() <= 8 ? topology.ranks() : std::min(topology.devices, 8);
    for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
      timeline.ranks.push_back(
          {&report.plan->programs[r], &report.plan->schedules[r], report.times[r]});
    }
  }
  errno = 0;
  std::ofstream file(path);
  file << timeline_svg(timelines);
  if (!file.flush()) {
    fail(ErrorCode::kResource, "--plot {}: cannot be written: {}", path, std::strerror(errno));
  }
}

bool on_gpus(const AttentionBench& o) {
  return parse_device(o.device).cuda;
}

std::string title_line(const AttentionBench& o, const Topology& topology) {
  const char* const emulated = topology.machines > 1 && !o.job ? ", machines emulated" : "";
  return fmt::format(
      "{}: {} tokens + {} joint, {} heads ({} KV) of {}, batch {}{}, on {} ranks{}, {}\n", o.shape,
      o.tokens, o.text, o.heads, o.kv_heads > 0 ? o.kv_heads : o.heads, o.head_dim, o.batch,
      o.causal ? ", causal" : "", sizes_of(topology),
      o.job ? fmt::format(" of {} processes", o.job->processes()) : "",
      on_gpus(o)          ? fmt::format("measured on GPUs{}, bf16", emulated)
      : o.profile.empty() ? fmt::format("measured on CPU ranks of {} thread{}{}", o.threads,
                                        o.threads == 1 ? "" : "s", emulated)
                          : fmt::format("predicted from the profile '{}'", o.profile));
}

// The simulator's time for the same run: a profile with attention as fast as a measured plain call,
// and links as fast as measured alone.
double predicted_seconds(const AttentionBench& o, const Topology& topology, const ModeReport& r,
                         const PerLink<LinkProfile>& links) {
  Profile profile = load_profile(o.profile.empty() ? "h200" : o.profile);
  const Program& program = r.plan->programs[0];
  double flops = 0;
  for (const Op& op : program.ops) {
    if (op.def->kind != "segment_attention") continue;
    const Work work{.extents = {.sequence = o.batch}};
    flops += op.def->cost(op.attrs, program.input_types(op), {}, work).flops;
  }
  std::erase_if(profile.rates, [](const Rate& rate) { return rate.kind == "segment_attention"; });
  profile.rates.push_back({.kind = "segment_attention",
                           .dtype = "",
                           .unit = Rate::Unit::flops,
                           .includes_memory = true,
                           .points = {{1, flops / (r.plain > 0 ? r.plain : r.compute)}}});
  const LinkProfile& machine = links[1];
  const LinkProfile& cluster = links[2];
  if (machine.bytes_per_second > 0)
    profile.machine_link.bytes_per_second = machine.bytes_per_second;
  if (cluster.bytes_per_second > 0) {
    profile.cluster_link.bytes_per_second = cluster.bytes_per_second;
    profile.cluster_link.latency_seconds = cluster.latency_seconds;
  }
  const CostModel model(profile, topology);
  return simulate(*r.plan, r.plan->works(), model).seconds;
}

// "torus", "torus, as keys come".
std::string mode_cell(SpMode mode, const ModePlan& plan) {
  return fmt::format("{}{}", to_string(mode), plan.waits_inside() ? ", as keys come" : "");
}

std::string cuda_table(const AttentionBench& o, const Topology& topology, const CudaModes& gpus,
                       const Reports& reports) {
  const LinkSpeed& speeds = gpus.links();
  const auto links = speeds.paced(o.link_gbps);
  std::string out = "links, GB/s each way, both at once:";
  for (size_t link : {1u, 2u}) {
    if (speeds.blocks[link] == 0) continue;
    out += fmt::format(
        " {} {:.1f} of blocks, {:.1f} of rows of half the heads, {:.1f} us at least; bound with "
        "{:.1f};",
        to_string(static_cast<LinkClass>(link)), speeds.blocks[link] / 1e9, speeds.rows[link] / 1e9,
        speeds.seconds[link] * 1e6, links[link].bytes_per_second / 1e9);
  }
  out.back() = '\n';
  out +=
      "| mode | torus x ulysses x ring | time ms | attention in it ms | exposed ms | bound ms | "
      "bound of the mode ms | attention alone ms | over one plain call | in machines MB / analytic "
      "| between MB / analytic | predicted ms | largest difference | same bits |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n";
  for (const auto& [mode, r] : reports) {
    const double predicted = predicted_seconds(o, topology, r, links);
    const double bound = schedule_bound(*r.plan, topology, r.plan->works(), r.compute, links);
    const double of_mode = mode_bound(r.plan->attention, r.plan->mesh, r.compute, links);
    out += fmt::format(
        "| {} | {} x {} x {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {} | {} | "
        "{} | {:.3f} ({:+.1f}%) | {:.2g} | {}, {:016x} |\n",
        mode_cell(mode, *r.plan), r.degrees.torus, r.degrees.ulysses, r.degrees.ring,
        r.seconds * 1e3, r.compute * 1e3, r.exposed * 1e3, bound * 1e3, of_mode * 1e3,
        r.alone * 1e3, r.plain > 0 ? fmt::format("{:+.1f}%", 100 * (r.alone / r.plain - 1)) : "-",
        bytes_cell(r, LinkClass::machine), bytes_cell(r, LinkClass::cluster), predicted * 1e3,
        100 * (predicted / r.seconds - 1), r.error, r.repeats ? "yes" : "NO", r.bits);
  }
  return out;
}

std::string table(const Reports& reports) {
  std::string out =
      "| mode | torus x ulysses x ring | time ms | without communication ms | exposed ms | in "
      "machines MB / analytic | between MB / analytic | over usp |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|\n";
  const auto usp = std::ranges::find(reports, SpMode::usp, &Reports::value_type::first);
  for (const auto& [mode, r] : reports) {
    out += fmt::format(
        "| {} | {} x {} x {} | {:.3f} | {:.3f} | {:.3f} | {} | {} | {} |\n", to_string(mode),
        r.degrees.torus, r.degrees.ulysses, r.degrees.ring, r.seconds * 1e3, r.compute * 1e3,
        r.exposed * 1e3, bytes_cell(r, LinkClass::machine), bytes_cell(r, LinkClass::cluster),
        usp == reports.end() ? "-" : fmt::format("{:.2f}x", usp->second.seconds / r.seconds));
  }
  return out;
}

void check(const AttentionBench& o) {
  require_between("--tokens", o.tokens, 1, kMostTokens);
  require_between("--text", o.text, 0, int64_t{1} << 20);
  require_between("--heads", o.heads, 1, 1024);
  require_between("--kv-heads", o.kv_heads, 0, o.heads);
  require_between("--head-dim", o.head_dim, 1, 512);
  require_between("--batch", o.batch, 1, 1024);
  const int64_t most = std::min<int64_t>(o.batch, kMaxMicroBatches);
  require_between("--micro-batches, of --batch sequences,", o.micro_batches, 1, most);
  require_between("--threads", o.threads, 1, 256);
  require_between("--pull-parts", o.pull_parts, 1, 8);
  require_between("-r", o.repetitions, 1, 1000);
  require_link_gbps(o.link_gbps);
}

// With the degrees that are fastest by simulation.
ModeReport best_of(AttentionBench o, SpMode mode, const Topology& topology,
                   const Profile& profile) {
  const auto meshes = sequence_meshes(mode, topology, o.heads, o.degrees);
  std::optional<ModeReport> best;
  for (const SequenceMesh& mesh : meshes) {
    const SpDegrees& d = mesh.degrees;
    o.degrees = {.torus = d.torus, .ulysses = d.ulysses, .ring = d.ring};
    ModeReport report = predict(o, mode, topology, profile);
    if (!best || report.seconds < best->seconds) best = std::move(report);
  }
  return best ? *std::move(best) : predict(o, mode, topology, profile);  // which says why not
}

void bench_attention(AttentionBench o) {
  check(o);
  if (!o.plot.empty()) {
    if (!o.plot.ends_with(".svg")) {
      fail(ErrorCode::kInvalidArgument, "--plot {}: wanted is a name that ends in .svg", o.plot);
    }
    require_writable("--plot", o.plot);
  }
  if (o.schedule == "auto") {
    fail(ErrorCode::kInvalidArgument,
         "--schedule auto: bench attention runs one strategy, by name");
  }
  if (o.shape != "custom") {
    const auto it = std::ranges::find(kShapes, o.shape, &AttentionShape::name);
    if (it == std::end(kShapes)) {
      fail(ErrorCode::kInvalidArgument,
           "--shape '{}': there are flux-3072, flux-4096, cogvideox-20s, cogvideox-40s, custom",
           o.shape);
    }
    o.tokens = it->tokens, o.text = it->text, o.heads = it->heads, o.head_dim = it->head_dim;
    o.kv_heads = 0;
  }
  usable_device(o.device, 1);  // fails without any
  std::optional<ClusterDescription> cluster;
  if (!o.cluster.empty()) {
    cluster = read_cluster(o.cluster);
    require_alike(*cluster);
    if (!cluster->profile) {
      fail(ErrorCode::kInvalidArgument, "--cluster {}: it has no profile to predict from",
           o.cluster);
    }
    o.machines = sizes_of(cluster->topology());
    o.profile = cluster->profile->name;
  }
  const bool predicted = !o.profile.empty() && !on_gpus(o);
  if (o.machines.empty() && (o.job == nullptr || predicted)) {
    const size_t gpus = parse_device(o.device).ids.size();
    o.machines = fmt::format("1x{}", gpus > 1 ? gpus : 2);
  }
  const Topology topology = o.job && !predicted ? lay_out(o) : parse_topology(o.machines);
  constexpr int kMost = fabric::LocalFabric::kMaxRanks;  // a prediction's time grows with the cube
  if (topology.ranks() > kMost) {
    fail(ErrorCode::kInvalidArgument, "--machines {}: {} ranks, at most {}", o.machines,
         topology.ranks(), kMost);
  }
  std::optional<Profile> profile;
  if (predicted) {
    profile = cluster ? *cluster->profile : load_profile(o.profile);
    LinkProfile& link = topology.machines > 1 ? profile->cluster_link : profile->machine_link;
    if (o.link_gbps > 0) link.bytes_per_second = o.link_gbps * 1e9;
  }
  const bool automatic = o.mode == "auto", every = automatic || o.mode == "all";
  std::vector<SpMode> modes;
  if (every) {
    modes.assign(kSpModes.begin(), kSpModes.end());
  } else {
    std::string_view rest = o.mode;
    while (true) {
      const size_t comma = rest.find(',');
      modes.push_back(parse_sp_mode(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  std::string out = title_line(o, topology);
  std::unique_ptr<CudaModes> gpus;
  if (on_gpus(o)) gpus = make_cuda_modes(o, topology);
  Reports reports;
  std::string refused;
  const auto report = [&](SpMode mode) {
    if (gpus) return gpus->measure(mode);
    if (!predicted) return measure(o, mode, topology);
    return automatic ? best_of(o, mode, topology, *profile) : predict(o, mode, topology, *profile);
  };
  for (SpMode mode : modes) {
    try {
      reports.emplace_back(mode, report(mode));
    } catch (const Error& error) {
      const bool last = mode == modes.back() && reports.empty();
      if (!every || last || error.code() != ErrorCode::kInvalidArgument) throw;
      refused += fmt::format("{}: {}\n", to_string(mode), error.what());
    }
  }
  if (o.job && o.job->process() > 0) return;
  out += gpus ? cuda_table(o, topology, *gpus, reports) : table(reports);
  out += refused;
  for (const auto& [mode, r] : reports) {
    if (o.launches) {
      out += fmt::format("{}, rank 0, us:\n{}", to_string(mode), timeline(*r.plan, r.times[0]));
    }
  }
  if (automatic && !reports.empty()) {
    const auto best = std::ranges::min_element(
        reports, {}, [](const auto& report) { return report.second.seconds; });
    out += fmt::format("auto: {}, {}\n", to_string(best->first), to_string(best->second.degrees));
  }
  print(out);
  if (!o.plot.empty()) write_plot(o.plot, reports);
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  auto* command =
      bench.add_subcommand("attention", "Compares the modes of sequence-parallel attention");
  const auto o = std::make_shared<AttentionBench>();
  command
      ->add_option("--shape", o->shape,
                   "flux-3072, flux-4096, cogvideox-20s, cogvideox-40s or custom")
      ->capture_default_str();
  command->add_option("--tokens", o->tokens, "custom: length of the sequence")
      ->capture_default_str();
  command->add_option("--text", o->text, "custom: joint prefix")->capture_default_str();
  command->add_option("--heads", o->heads, "custom: query heads")->capture_default_str();
  command->add_option("--kv-heads", o->kv_heads, "custom: KV heads (0: as many)");
  command->add_option("--head-dim", o->head_dim, "custom: head dimension")->capture_default_str();
  command->add_option("--batch", o->batch, "sequences")->capture_default_str();
  command
      ->add_option("--micro-batches", o->micro_batches,
                   "that the sequences are divided into, for --schedule")
      ->capture_default_str();
  command->add_flag("--causal", o->causal, "causal mask, zigzag layout");
  command->add_option(
      "--machines", o->machines,
      "[RACKSx]MACHINESxDEVICES; else one machine, of --device's GPUs or of two ranks");
  command
      ->add_option("--cluster", o->cluster,
                   "a cluster's description: predict for its machines by its profile")
      ->excludes(command->get_option("--machines"));
  command->add_option("--device", o->device, "cpu, cuda, or cuda:0,1: a rank on each GPU")
      ->capture_default_str();
  command
      ->add_option("--sp", o->mode,
                   "ring, ulysses, usp, tas, torus, several with commas, auto or all")
      ->capture_default_str();
  const auto degrees = std::make_shared<DegreeOptions>();
  degrees->add_to(*command, "");
  command->add_option("--schedule", o->schedule, "a strategy")->capture_default_str();
  command
      ->add_option("--profile", o->profile,
                   "predict from this profile; on GPUs: beside what is measured")
      ->excludes(command->get_option("--cluster"));
  command->add_option("--link-gbps", o->link_gbps,
                      "GB/s between machines (of one machine: between ranks on the CPU), with 5 us "
                      "a transfer; 0: as it is");
  command->add_option("--plot", o->plot, "write the timelines to this SVG file");
  command->add_flag("--by-stages", o->by_phases,
                    "on GPUs, ring and torus: each stage is a call of its own, also where one call "
                    "takes keys as they come");
  command
      ->add_option("--pull-parts", o->pull_parts,
                   "on GPUs, ring and torus between machines: keys come in up to so many parts")
      ->capture_default_str();
  command->add_flag("--launches", o->launches, "print when each stage of rank 0 runs");
  command->add_option("--threads", o->threads, "of each rank")->capture_default_str();
  command->add_option("-r", o->repetitions, "repetitions; the median counts")
      ->capture_default_str();
  const auto in_job = std::make_shared<JobOptions>();
  add_job(*command, *in_job);
  command->footer(
      "Examples:\n  braid bench attention --machines 2x2 --sp all --link-gbps 1\n"
      "  braid bench attention --shape flux-3072 --machines 4x8 --profile a100 --sp auto\n"
      "  braid bench attention --shape flux-3072 --device cuda:0,1 --machines 2x1 --link-gbps 25");
  command->callback([o, degrees, in_job, command, &bench] {
    require_no_options(bench, "attention");
    for (const char* name : {"--tokens", "--text", "--heads", "--kv-heads", "--head-dim"}) {
      if (o->shape == "custom" || command->count(name) == 0) continue;
      fail(ErrorCode::kInvalidArgument, "{} goes with --shape custom: {} has its own", name,
           o->shape);
    }
    o->degrees = degrees->request();
    run_in_job(*in_job, [&](job::Job* job) {
      o->job = job;
      bench_attention(*o);
    });
  });
}

}  // namespace braid::app
