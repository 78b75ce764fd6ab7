#include "braid/engine/describe_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "braid/base/build_id.h"
#include "braid/base/fnv.h"
#include "braid/engine/gpu_identity.h"
#include "braid/engine/step_planners.h"
#include "braid/io/text_file.h"
#include "braid/job/packing.h"
#include "braid/kernels/cpu/rank_kernels.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

// "none" for a missing file: the code that opens the file reports more.
std::string hash_of_file(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return "none";
  Fnv hash;
  hash.add(read_text(path));
  return fmt::format("{:016x}", hash.value());
}

RankDescription rank_here(const RunnerConfig& c) {
  const bool library = !c.strategy && is_strategy_file(c.schedule);
  RankDescription rank = {.host = job::host_name(),
                          .device = "cpu",
                          .units = c.threads,
                          .kernels = cpu::instruction_sets(),
                          .memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
                          .build = build_id(),
                          .strategy_library = library ? hash_of_file(c.schedule) : ""};
  if (c.device.cuda) {
    const GpuIdentity gpu = gpu_identity(c.device.first_gpu());
    rank.device = gpu.name;
    rank.units = gpu.sms;
    rank.kernels = gpu.kernels;
    rank.memory_bytes = gpu.memory_bytes;
  }
  return rank;
}

// Process 0 checks all descriptions, and every process takes the verdict: an error's text, or the
// description.
ClusterDescription gather(const RunnerConfig& c, const RankDescription& mine) {
  job::Job& job = *c.job;
  const std::vector<std::string> all = job.gather("ranks", to_json(described(c, mine)));
  job::Packer verdict;
  if (job.process() == 0) {
    ClusterDescription cluster = described(c, mine);
    cluster.ranks.clear();
    for (const std::string& json : all) {
      const std::vector<RankDescription> theirs = parse_cluster(json, "a rank").ranks;
      const auto each = std::ssize(theirs) / job.processes();
      cluster.ranks.insert(cluster.ranks.end(), theirs.begin(), theirs.begin() + each);
    }
    try {
      require_alike(cluster);
      verdict.add("").add(to_json(cluster));
    } catch (const Error& error) {
      verdict.add(error.what()).add("");
    }
  }
  job::Unpacker fields(job.broadcast("ranks", verdict.bytes()));
  if (const std::string error = fields.text(); !error.empty()) {
    throw Error(ErrorCode::kInvalidArgument, error);
  }
  return parse_cluster(fields.text(), "the ranks that process 0 has gathered");
}

}  // namespace

ClusterDescription described(const RunnerConfig& c, const RankDescription& rank) {
  return {.ranks = std::vector<RankDescription>(std::max(c.tp, 1), rank),
          .machines = c.links.machines,
          .racks = c.links.racks,
          .mapped = topology_of(c).mapped,
          .profile = c.profile,
          .schedule = c.strategy ? c.strategy->name() : c.schedule,
          .sp = c.sp,
          .thinning = c.thinning,
          .ep = c.ep,
          .dp = c.dp,
          .expert_memory = c.expert_memory,
          .communication = c.communication,
          .cache = c.cache,
          .model = ""};
}

RunnerConfig runner_of(const ClusterDescription& cluster) {
  RunnerConfig c = {.tp = cluster.ranks_count(),
                    .ep = cluster.ep,
                    .dp = cluster.dp,
                    .expert_memory = cluster.expert_memory,
                    .threads = static_cast<int>(cluster.ranks.front().units),
                    .sp = cluster.sp,
                    .thinning = cluster.thinning,
                    .cache = cluster.cache,
                    .schedule = cluster.schedule,
                    .mapped = cluster.mapped,
                    .profile = cluster.profile,
                    .communication = cluster.communication};
  c.links.machines = cluster.machines;
  c.links.racks = cluster.racks;
  return c;
}

ClusterDescription describe_cluster(const RunnerConfig& config) {
  const RankDescription mine = rank_here(config);
  return config.job ? gather(config, mine) : described(config, mine);
}

std::string identity(const Model& model) {
  if (model.random()) return fmt::format("random weights, {} parameters", model.parameters());
  const std::string& path = model.source().path();
  Fnv hash;
  int64_t bytes = 0;
  for (const TensorInfo& tensor : model.source().tensors()) {
    hash.add(tensor.name);
    hash.add(tensor.type);
    for (int64_t n : tensor.shape) hash.add(n);
    bytes += tensor.bytes;
  }
  std::error_code none;
  if (std::filesystem::is_regular_file(path, none)) {
    bytes = static_cast<int64_t>(std::filesystem::file_size(path, none));
    std::ifstream file(path, std::ios::binary);
    std::string head(size_t{1} << 20, '\0');
    file.read(head.data(), std::ssize(head));
    head.resize(file.gcount());
    hash.add(head);
  }
  return fmt::format("{} bytes, header {:016x}", bytes, hash.value());
}

}  // namespace braid
