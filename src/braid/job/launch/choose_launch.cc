#include <unistd.h>

#include "braid/job/launch/variables.h"

namespace braid::job {
namespace {

std::string about(const Launch& launch) {
  return fmt::format("{} says process {} of {}", to_string(launch.source), launch.process,
                     launch.processes);
}

[[noreturn]] void refuse(const Launch& a, const Launch& b) {
  fail(ErrorCode::kInvalidArgument,
       "two sources of rank and size: {}, {}: --job {} or --job {} says which one counts", about(a),
       about(b), to_string(a.source), to_string(b.source));
}

// Without a meeting place processes cannot find each other.
Launch complete(Launch launch) {
  const bool meets = launch.source == LaunchSource::pmix || !launch.host.empty();
  if (launch.processes == 1 || meets) return launch;
  fail(ErrorCode::kInvalidArgument,
       "{}, and MASTER_ADDR is not set: wanted the host of process 0 there (and a free port of it "
       "in MASTER_PORT, {} by default)",
       about(launch), kDefaultPort);
}

// Open MPI sets both kinds of variables: PMIx is the better meeting place.
std::optional<Launch> of_mpi(const Environment& env, bool has_pmix) {
  const auto pmix = pmix_launch(env), mpi = mpi_launch(env);
  if (!pmix || !mpi) return pmix ? pmix : mpi;
  if (pmix->process != mpi->process || (pmix->processes && pmix->processes != mpi->processes)) {
    refuse(*pmix, *mpi);
  }
  return has_pmix ? pmix : mpi;
}

void refuse_lonely_tasks(const Environment& env) {
  if (!find(env, "SLURM_STEP_NUM_TASKS")) return;
  const int tasks = number(env, "SLURM_STEP_NUM_TASKS", 1, 1 << 20);
  if (tasks == 1) return;
  fail(ErrorCode::kInvalidArgument,
       "a Slurm step of {} tasks without PMIx: each would believe to be alone: start it by "
       "srun --mpi=pmix, or say --job none",
       tasks);
}

Launch pinned(const Environment& env, std::string_view wanted, bool has_pmix) {
  std::optional<Launch> launch;
  std::string_view variables;
  if (wanted == "none") return {};
  if (wanted == "pmix") {
    launch = pmix_launch(env);
    variables = "PMIX_RANK and PMIX_NAMESPACE";
    if (launch && !has_pmix) {
      fail(ErrorCode::kUnsupported,
           "--job pmix: this build has no PMIx: build it with Debian's libpmix-dev");
    }
  } else if (wanted == "mpi") {
    launch = mpi_launch(env);
    variables = "OMPI_COMM_WORLD_RANK and _SIZE, or PMI_RANK and PMI_SIZE";
  } else if (wanted == "env") {
    launch = env_launch(env);
    if (!launch) launch = lws_launch(env);
    variables = "RANK and WORLD_SIZE, or LWS_WORKER_INDEX and LWS_GROUP_SIZE";
  } else {
    fail(ErrorCode::kInvalidArgument, "--job '{}': wanted auto, pmix, mpi, env or none", wanted);
  }
  if (launch) return complete(*launch);
  fail(ErrorCode::kInvalidArgument, "--job {}: {} are not set in the environment", wanted,
       variables);
}

}  // namespace

std::string_view to_string(LaunchSource source) {
  switch (source) {
    case LaunchSource::none:
      return "none";
    case LaunchSource::pmix:
      return "pmix";
    case LaunchSource::mpi:
      return "mpi";
    case LaunchSource::env:
    case LaunchSource::lws:
      return "env";
  }
  return "unknown";
}

Environment this_environment() {
  Environment result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t at = text.find('=');
    if (at != std::string_view::npos) result.emplace(text.substr(0, at), text.substr(at + 1));
  }
  return result;
}

Launch choose_launch(const Environment& env, std::string_view wanted, bool has_pmix) {
  if (wanted != "auto") return pinned(env, wanted, has_pmix);
  const std::optional<Launch> mpi = of_mpi(env, has_pmix);
  std::optional<Launch> other = env_launch(env);
  if (mpi && other) refuse(*mpi, *other);
  // LeaderWorkerSet's variables tell pods apart: a launcher inside a pod says more.
  if (!mpi && !other) other = lws_launch(env);
  if (!mpi) refuse_lonely_tasks(env);
  if (mpi && mpi->source == LaunchSource::pmix && !has_pmix) {
    fail(ErrorCode::kUnsupported,
         "{}: this build has no PMIx: build it with Debian's libpmix-dev, or say --job none",
         about(*mpi));
  }
  if (mpi) return complete(*mpi);
  return other ? complete(*other) : Launch{};
}

}  // namespace braid::job
