#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

// This process' rank, size and meeting place, as launchers give them in environment variables. All
// functions are pure: they read the map and nothing else.
namespace braid::job {

using Environment = std::map<std::string, std::string, std::less<>>;

// The variables of this process.
Environment this_environment();

enum class LaunchSource {
  none,  // one process, started by hand
  pmix,  // a PMIx server: srun --mpi=pmix, Open MPI's mpirun
  mpi,   // Open MPI's or PMI's variables without a PMIx server
  env,   // torchrun's variables
  lws,   // LeaderWorkerSet's variables, one process per pod
};
std::string_view to_string(LaunchSource source);

struct Launch {
  LaunchSource source = LaunchSource::none;
  int process = 0;
  int processes = 1;
  std::string host;  // process 0's address; empty with PMIx, which needs no address
  int port = 0;
};

inline constexpr int kMaxProcesses = 1024;
inline constexpr int kDefaultPort = 29500;

// Each source's facts: nothing without the source's variables. Fails with kInvalidArgument on
// incomplete, non-numeric or out-of-range variables, naming variable, value and limit.
std::optional<Launch> pmix_launch(const Environment& env);
std::optional<Launch> mpi_launch(const Environment& env);
std::optional<Launch> env_launch(const Environment& env);
std::optional<Launch> lws_launch(const Environment& env);

// Chooses the launch. `wanted` is "auto" or pins a source: pmix, mpi, env (also
// LeaderWorkerSet) or none. `has_pmix`: this build can talk to a PMIx server. Fails with
// kInvalidArgument on an unknown name, a pinned source without variables, two contradicting
// sources, and on a step of several Slurm tasks without PMIx, because each task would believe
// to be alone.
Launch choose_launch(const Environment& env, std::string_view wanted, bool has_pmix);

}  // namespace braid::job
