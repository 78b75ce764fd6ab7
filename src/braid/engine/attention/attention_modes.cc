#include "braid/engine/attention/attention_modes.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "braid/backend/cpu/cpu_backend.h"
#include "braid/backend/null/null_backend.h"
#include "braid/engine/attention/attention_job.h"
#include "braid/engine/job_times.h"
#include "braid/fabric/host_barrier.h"
#include "braid/fabric/local/local_fabric.h"
#include "braid/fabric/rank_threads.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cpu/register.h"
#include "braid/parallel/attention/traffic.h"
#include "braid/runtime/executor.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

namespace braid::attention_modes {
namespace {

SequenceAttention attention_of(const AttentionBench& o, int P, DType dtype) {
  SequenceAttention a{.batch = o.batch,
                      .q_heads = o.heads,
                      .kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads,
                      .head_dim = o.head_dim,
                      .dtype = dtype,
                      .scale = 1 / std::sqrt(static_cast<float>(o.head_dim)),
                      .window_right = o.causal ? 0 : -1};
  a.joint_q = a.joint_kv = o.text;
  a.q = a.kv = o.causal ? zigzag_layout(o.tokens, P, o.text) : even_layout(o.tokens, P, o.text);
  return a;
}

// From the first launch to the last.
double span_of(std::span<const std::vector<LaunchTime>> ranks) {
  double begin = INFINITY, end = 0;
  for (const auto& rank : ranks) {
    for (const LaunchTime& t : rank) {
      begin = std::min(begin, t.begin);
      end = std::max(end, t.end);
    }
  }
  return end - begin;
}

void fill(const TensorView& view, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> unit(-1, 1);
  for (int64_t i = 0; i < view.shape.elems(); ++i) view.as<float>()[i] = unit(random);
}

struct AttentionRank {
  AttentionRank(fabric::Endpoint& endpoint, const Mesh& mesh, int threads, int total)
      : table(threads),
        silent(threads),
        pool(threads, total),
        comms(endpoint, {&mesh, 1}),
        backend(table, pool),
        silent_backend(silent, pool) {
    for (cpu::KernelTable* t : {&table, &silent}) {
      cpu::add_cpu_kernels(*t);
      cpu::add_one_sided_kernels(*t, endpoint, comms);
    }
    cpu::drop_communication(silent);
  }
  cpu::KernelTable table, silent;  // silent: nothing is communicated
  cpu::ThreadPool pool;
  cpu::MeshComms comms;
  cpu::CpuBackend backend, silent_backend;
};

}  // namespace

std::shared_ptr<const ModePlan> plan_mode(const AttentionBench& o, SpMode mode,
                                          const Topology& topology, DType dtype,
                                          const std::vector<const KernelCatalog*>& catalogs) {
  auto shared = std::make_shared<ModePlan>();
  ModePlan& made = *shared;
  made.attention = attention_of(o, topology.ranks(), dtype);
  made.mesh = sequence_mesh(mode, topology, o.heads, o.degrees);
  AttentionDivision division{.most_parts = o.pull_parts};
  if (!o.by_phases) division.kernels = catalogs;
  made.programs = attention_programs(made.attention, made.mesh, division);
  PlanRequest request{.catalogs = catalogs, .micro_batches = {}, .topology = topology, .price = {}};
  for (int mb = 0; mb < o.micro_batches; ++mb) {
    made.counts.push_back({.sequence = even_part(o.batch, o.micro_batches, mb).size()});
    request.micro_batches.push_back({.capacity = made.counts.back()});
  }
  plan_schedules(made, *find_strategy(o.schedule), request);
  return shared;
}

ModeReport report_of(const std::shared_ptr<const ModePlan>& plan) {
  ModeReport report{.degrees = plan->mesh.degrees};
  report.plan = plan;
  for (const auto& rank : attention_traffic(plan->attention, plan->mesh)) {
    for (size_t link = 0; link < rank.size(); ++link) {
      report.analytic[link] += static_cast<double>(rank[link]);
    }
  }
  return report;
}

ModeReport predict(const AttentionBench& o, SpMode mode, const Topology& topology,
                   const Profile& profile) {
  NullBackend backend;
  const auto shared = plan_mode(o, mode, topology, DType::bf16, {&backend.catalog()});
  const ModePlan& made = *shared;
  ModeReport report = report_of(shared);
  const CostModel model(profile, topology);
  const SimulatedStep step = simulate(made, made.works(), model);
  report.seconds = step.seconds;
  report.bytes = step.wire_bytes;
  report.times = step.times;
  report.compute = simulate_without_communication(made, made.works(), model).seconds;
  report.exposed = report.seconds - report.compute;
  return report;
}

ModeReport measure(const AttentionBench& o, SpMode mode, Topology topology) {
  const int P = topology.ranks();
  fabric::LinkModel links{.machines = topology.machines};
  if (o.link_gbps > 0) {
    auto& link = topology.machines > 1 ? links.cluster_link : links.machine_link;
    link = Link{o.link_gbps * 1e9, 5e-6};
  }
  topology.mapped = !links.machine_link && o.job == nullptr;
  const SequenceMesh mesh = sequence_mesh(mode, topology, o.heads, o.degrees);
  const std::unique_ptr<fabric::Fabric> world =
      o.job ? make_job_fabric(o, topology)
            : std::make_unique<fabric::LocalFabric>(fabric::LocalFabricConfig{
                  .ranks = P, .threads_per_rank = o.threads + kNumStreams - 1, .links = links});
  const auto first = static_cast<size_t>(world->first_rank());
  const auto here = static_cast<size_t>(world->ranks_here());
  std::vector<std::unique_ptr<AttentionRank>> ranks(static_cast<size_t>(P));
  for (size_t r = first; r < first + here; ++r) {
    ranks[r] = std::make_unique<AttentionRank>(world->endpoint(static_cast<int>(r)), mesh.mesh,
                                               o.threads, P * o.threads);
  }
  // Ranks of other processes have the same kernels.
  std::vector<const KernelCatalog*> catalogs;
  for (const auto& rank : ranks) catalogs.push_back(&(rank ? rank : ranks[first])->table);
  const auto shared = plan_mode(o, mode, topology, DType::f32, catalogs);
  const ModePlan& made = *shared;
  if (o.job) agree_on_plan(*o.job, made);
  ModeReport report = report_of(shared);
  // [repetitions][ranks][launches]; the first run warms up.
  using Runs = std::vector<std::vector<std::vector<LaunchTime>>>;
  Runs times(static_cast<size_t>(o.repetitions) + 1, std::vector<std::vector<LaunchTime>>(P));
  Runs silent_times = times;
  std::vector<PerLink<double>> bytes(P);  // of the last run
  fabric::run_rank_threads(*world, [&](int rank) {
    fabric::Endpoint& endpoint = world->endpoint(rank);
    const size_t r = rank;
    const auto arena = std::make_shared<fabric::SymmetricMemory>(
        endpoint, made.schedules[r].memory.arena_bytes, "arena");
    Executor executor(made.programs[r], made.schedules[r], ranks[r]->backend, {}, arena);
    Executor silent(made.programs[r], made.schedules[r], ranks[r]->silent_backend, {}, arena);
    fabric::HostBarrier meeting(endpoint);
    uint64_t seed = r;
    for (const char* name : {"q", "k", "v"}) fill(executor.input(name), ++seed);
    if (o.text > 0) {
      for (const char* name : {"joint_q", "joint_k", "joint_v"}) fill(executor.input(name), 99);
    }
    for (auto& run : times) {
      run[r].resize(made.schedules[r].launches.size());
      endpoint.traffic().reset();
      executor.run(made.counts, run[r]);
    }
    for (const auto& entry : endpoint.traffic().entries()) {
      if (entry.verb == fabric::Verb::signal) continue;
      bytes[r][entry.link] += static_cast<double>(entry.bytes);
    }
    for (auto& run : silent_times) {
      run[r].resize(made.schedules[r].launches.size());
      meeting.wait();
      silent.run(made.counts, run[r]);
    }
  });
  std::vector<double> moved;
  for (const auto& rank : bytes) moved.insert(moved.end(), rank.begin(), rank.end());
  for (const std::vector<double>& process : gather(o.job, "bytes", moved)) {
    for (size_t i = 0; i < process.size(); ++i) report.bytes[i % 3] += process[i];
  }
  if (o.job) {
    JobTimes clocks(*o.job);
    for (Runs* runs : {&times, &silent_times}) {
      for (auto& run : *runs) {
        const auto mine = std::vector(run.begin() + static_cast<std::ptrdiff_t>(first),
                                      run.begin() + static_cast<std::ptrdiff_t>(first + here));
        clocks.gather(run, mine);
      }
    }
  }
  const auto median_run = [](const Runs& all) {
    std::vector<std::pair<double, size_t>> runs;
    for (size_t i = 1; i < all.size(); ++i) runs.emplace_back(span_of(all[i]), i);
    std::ranges::sort(runs);
    return runs[runs.size() / 2];
  };
  const auto [seconds, index] = median_run(times);
  report.seconds = seconds;
  report.times = times[index];
  report.compute = median_run(silent_times).first;
  report.exposed = report.seconds - report.compute;
  return report;
}

}  // namespace braid::attention_modes
