#include "braid/job_options.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "braid/base/build_id.h"
#include "braid/engine/limits.h"
#include "braid/engine/step_records.h"
#include "braid/interrupt.h"
#include "braid/options.h"
#include "braid/version.h"

namespace braid::app {
namespace {

// Of the five seconds in which a failed job's process is promised to be gone, the driver may take
// more than two to free the process' GPU.
constexpr std::chrono::milliseconds kGrace{1500};

// This process' arguments, as a line of text.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  std::string text = std::move(all).str();
  text.erase(0, text.find('\0') + 1);  // the program
  if (!text.empty()) text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

// The outputs of a job's process.
class JobOutput {
 public:
  JobOutput(const job::Job& job, const std::string& log_dir)
      : terminal_(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    if (!log_dir.empty()) open_log(job, log_dir);  // fails before anything is moved
    if (job.process() == 0) return;
    std::fflush(nullptr);
    const int to = log_ >= 0 ? log_ : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (to < 0) return;
    dup2(to, STDOUT_FILENO);
    dup2(to, STDERR_FILENO);
    if (to != log_) close(to);
  }
  ~JobOutput() {
    if (log_ >= 0) close(log_);
    if (terminal_ >= 0) close(terminal_);
  }
  JobOutput(const JobOutput&) = delete;
  JobOutput& operator=(const JobOutput&) = delete;

  // On the terminal, and in the log.
  void say(const std::string& line) const {
    std::fflush(nullptr);
    write_line(terminal_, "braid: " + line + "\n");
    write_line(log_, "braid: " + line + "\n");
  }

 private:
  static bool write_line(int fd, const std::string& line) {
    return fd < 0 || write(fd, line.data(), line.size()) == std::ssize(line);
  }
  void open_log(const job::Job& job, const std::string& log_dir) {
    std::error_code ignored;
    std::filesystem::create_directories(log_dir, ignored);
    const std::string path = fmt::format("{}/rank-{}.log", log_dir, job.process());
    log_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const std::string first =
        fmt::format("{}, rank {} of {} on {}, pid {}\n", version_line(), job.process(),
                    job.processes(), job::host_name(), getpid());
    if (log_ >= 0 && write_line(log_, first)) return;
    fail(ErrorCode::kResource, "--log-dir: cannot write {}: {}", path, std::strerror(errno));
  }

  int terminal_ = -1, log_ = -1;
};

// The job's first error, as status and text.
int status_of(const std::exception_ptr& error, std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    text = e.what();
    return e.code() == ErrorCode::kInvalidArgument ? 2 : 1;
  } catch (const std::bad_alloc&) {
    text = "out of memory";
  } catch (const Interrupted&) {
    text = "interrupted";
    return 130;
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
    text = "an exception of unknown type";
  }
  return 1;
}

std::exception_ptr first_error(const job::Job& job, const std::exception_ptr& own) {
  try {
    job.rethrow_error();
  } catch (...) {
    return std::current_exception();
  }
  return own;
}

}  // namespace

void add_job_source(CLI::App& command, JobOptions& o) {
  command
      .add_option("--job", o.job,
                  "who started several processes as one job: auto, pmix (srun --mpi=pmix, mpirun), "
                  "mpi, env (torchrun's variables, LeaderWorkerSet) or none")
      ->capture_default_str()
      ->group(kRanks);
}

void add_job(CLI::App& command, JobOptions& o) {
  add_job_source(command, o);
  command
      .add_option("--job-timeout", o.timeout,
                  "seconds after which a silent process of a job has failed")
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option("--log-dir", o.log_dir,
                  "each process of a job writes here what it would print: rank-0.log, ...")
      ->group(kRanks);
}

void require_one_process(const JobOptions& options, std::string_view command) {
  const job::Launch launch =
      job::choose_launch(job::this_environment(), options.job, job::has_pmix());
  if (launch.processes == 1) return;
  fail(ErrorCode::kInvalidArgument,
       "braid {} runs in one process so far, the launcher started {}: --job none lets each run by "
       "itself",
       command, launch.processes);
}

bool is_first_process() {
  try {
    return job::choose_launch(job::this_environment(), "auto", job::has_pmix()).process == 0;
  } catch (const Error&) {
    return true;
  }
}

void run_in_job(const JobOptions& options, const std::function<void(job::Job* job)>& body) {
  if (!(options.timeout >= 0.1 && options.timeout <= 3600)) {
    fail(ErrorCode::kInvalidArgument, "--job-timeout is {}, wanted 0.1 to 3600", options.timeout);
  }
  const job::Launch launch =
      job::choose_launch(job::this_environment(), options.job, job::has_pmix());
  if (launch.processes == 1) return body(nullptr);
  std::optional<JobOutput> output;
  const auto say = [&](const std::string& line) {
    if (output) return output->say(line);
    std::fprintf(stderr, "braid: %s\n", line.c_str());
  };
  job::JobConfig config{
      .launch = launch,
      .timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * options.timeout)),
      .grace = kGrace,
      .say = say};
  const std::unique_ptr<job::Job> job = job::start_job(config);
  try {
    output.emplace(*job, options.log_dir);
    job->agree("builds", fmt::format("{}, build {}", version_line(), build_id()));
    job->agree("command lines", command_line());
    job->phase(job::Phase::loading);
    body(job.get());
    end_followers(*job);
    job->finish();
  } catch (...) {
    const std::exception_ptr own = std::current_exception();
    job->fail(own);
    std::string text;
    const int status = status_of(first_error(*job, own), text);
    if (status != 2 || job->process() == 0) say(job->last_words(text));
    job->said();
    throw JobEnded{status};
  }
}

}  // namespace braid::app
