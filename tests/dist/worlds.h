#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "braid/fabric/local/run_ranks.h"
#include "braid/fabric/rank_threads.h"
#include "namespaces.h"
#include "processes.h"

// Worlds that every fabric test runs in: ranks as threads of this process, or divided over
// processes.
namespace braid::fabric {

using job::Shared;

struct World {
  int processes = 0;      // 0: ranks are threads of this process
  bool messages = false;  // processes send over TCP, else they map each other's memory
  std::string name() const {
    return processes == 0 ? "threads"
                          : fmt::format("{}processes{}", processes, messages ? "_tcp" : "");
  }
  // Where a test cannot run.
  bool here() const { return processes == 0 || job::has_jobs(); }
};

// Those of so many ranks that this build has: threads, a process for each, and by messages two
// ranks in each, where the number is even.
inline std::vector<World> worlds(int ranks) {
  std::vector<World> all = {{}};
  if (!job::has_jobs()) return all;
  all.push_back({ranks});
  all.push_back({ranks > 2 && ranks % 2 == 0 ? ranks / 2 : ranks, true});
  return all;
}

// Hosts for processes: network namespaces of this test program, for its whole life. Null without
// BRAID_TEST_HOSTS, or where namespaces cannot be made.
inline const job::Namespaces* hosts_for(int processes) {
  constexpr int kHosts = 8;
  if (std::getenv("BRAID_TEST_HOSTS") == nullptr || processes > kHosts) return nullptr;
  static const job::Namespaces hosts(kHosts);
  return hosts.here() ? &hosts : nullptr;
}

// Runs fn(endpoint) on every rank and returns when all have; expectations may stand in it. The
// job's first error is rethrown. In processes fn sees copies of what it captures: what ranks share
// is Shared. There links are as they are; the layout of config.links counts, its speeds must not
// be set.
inline void run_world(const World& world, const LocalFabricConfig& config,
                      const std::function<void(Endpoint&)>& fn) {
  if (world.processes == 0) return run_ranks(config, fn);
  BRAID_CHECK(!config.links.any_emulated());
  job::ProcessOptions options{.processes = world.processes};
  const job::Namespaces* const hosts = hosts_for(world.processes);
  if (hosts) options.host = job::Namespaces::address(0);
  options.launch = [&world, hosts](int p, job::Launch&) {
    if (world.messages) setenv("UCX_TLS", "tcp,self", 1);
    if (hosts != nullptr) {
      ASSERT_TRUE(hosts->enter(p));  // by TCP
    }
  };
  const auto endings = job::run_processes(options, [&](job::Job& job) {
    const auto fabric = job.make_fabric({.ranks = config.ranks,
                                         .threads_per_rank = config.threads_per_rank,
                                         .deadline = config.deadline,
                                         .machines = config.links.machines});
    run_rank_threads(*fabric, [&](int rank) { fn(fabric->endpoint(rank)); });
    job.barrier("all ranks are done");  // before memory goes
  });
  for (const job::Ending& ending : endings) {
    if (ending.is_error && ending.failed_here) throw Error(ending.code, ending.text);
  }
  for (size_t p = 0; p < endings.size(); ++p) {
    EXPECT_TRUE(endings[p].done) << "process " << p << ": " << endings[p].text << ", signal "
                                 << endings[p].signal;
  }
}

}  // namespace braid::fabric
