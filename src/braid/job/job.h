#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "braid/fabric/fabric.h"
#include "braid/job/launch/launch.h"

// A job: processes started by a launcher on one or several hosts, with their numbers, their
// agreements, and a common end after a failure.
namespace braid::job {

// A process' activity, for the line about a job's failure.
enum class Phase : uint8_t { start, loading, planning, first_step, steps, drain };
std::string_view to_string(Phase phase);

struct JobConfig {
  Launch launch;
  // A process silent for this time has failed; also the longest wait for a process to come.
  std::chrono::milliseconds timeout{10000};
  // In a failed job, a process still running after this time is ended.
  std::chrono::milliseconds grace{5000};
  // Prints the last words of a process ended by force; empty: to the error output.
  std::function<void(const std::string&)> say;
};

struct Member {
  std::string host;
  int pid = 0;
};

struct JobFabric {
  int ranks = 1;  // a multiple of the processes; process p has the p-th part
  int threads_per_rank = 1;
  fabric::Duration deadline = std::chrono::seconds(60);
  // 0: ranks of a host are a machine. Otherwise as many machines, for tests on a single host: only
  // link classes, nothing is slower.
  int machines = 0;
};

// All calls but fail() and phase() are collective: every process makes them in the same order. Each
// ends with its result, with kDeadline after ten minutes, or with kAborted soon after any process
// failed. Not for several threads, but for fail() and phase().
class Job {
 public:
  virtual ~Job() = default;

  virtual int process() const = 0;
  virtual const std::vector<Member>& members() const = 0;  // [processes]
  int processes() const { return static_cast<int>(members().size()); }
  // "rank 3 on HOST", "ranks 6 to 7 on HOST".
  std::string name(int process) const;

  // Checks that every value is the same; kInvalidArgument names two processes with their values.
  // For a long value, `show` replaces the text in the message, unless empty.
  void agree(std::string_view what, std::string_view value, std::string_view show = "");
  // The values of all processes in order; at process 0 only, elsewhere nothing.
  virtual std::vector<std::string> gather(std::string_view what, std::string_view value) = 0;
  // The value of process 0.
  virtual std::string broadcast(std::string_view what, std::string_view value) = 0;
  void barrier(std::string_view what);
  // How far each process' steady clock is ahead of process 0's, in seconds: [processes] at process
  // 0, elsewhere nothing. Stamps go back and forth; the fastest exchange counts, and half of its
  // time is the error at most.
  std::vector<double> clocks_ahead();
  // The last call: all processes have come to their end, and connections that close are no failure.
  virtual void finish() = 0;

  // Records from process 0 to all others, in order. Not collective, and for one thread: sending
  // waits while another process is more than two records behind. The next record is asked for when
  // the last one is done.
  virtual void send_record(std::string_view record) = 0;
  virtual std::string next_record() = 0;

  // Ends the job: its first error is the job's, and is told to all processes.
  virtual void fail(std::exception_ptr error) = 0;
  // Rethrows the job's error, if any.
  virtual void rethrow_error() const = 0;
  // "rank 1 on B: ended in the first step, since rank 3 on D failed in the first step: ..." from
  // the job's error, or from `own` without one.
  virtual std::string last_words(const std::string& own) const = 0;
  // Whether the job failed by an error of this process.
  virtual bool failed_here() const = 0;
  // The line above is printed, or need not be: who is ended later says nothing more.
  virtual void said() = 0;

  virtual void phase(Phase phase) = 0;

  // Symmetric memory over all processes; lives no longer than the job.
  virtual std::unique_ptr<fabric::Fabric> make_fabric(const JobFabric& config) = 0;
  // The carrier of bytes to a process: "tcp/eth0", "posix + cma", "self".
  virtual std::string transport(int process) = 0;

 protected:
  virtual int ranks_per_process() const = 0;
};

// Meets the other processes. Fails with kDeadline, naming absent processes, with kInvalidArgument
// for processes with equal numbers or different sizes, and with kUnsupported in a build without
// UCX.
std::unique_ptr<Job> start_job(const JobConfig& config);
// This build's libraries: "UCX 1.13.1, PMIx 4.2.2", or the packages to add.
std::string job_libraries();
bool has_pmix();

// The name of this machine.
std::string host_name();

}  // namespace braid::job
