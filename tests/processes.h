#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "braid/base/error.h"
#include "braid/job/job.h"

// Jobs of several processes inside a test: the test forks them, they meet on this host.
namespace braid::job {

// Memory that this process and those that it forks share; zeroed.
template <class T>
class Shared {
 public:
  Shared() {
    void* memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory) T();
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_ = nullptr;
};

// How a process ended.
struct Ending {
  int exit_status = -1;  // -1: by a signal, or too late
  int signal = 0;
  bool done = false;         // fn returned in it, and no expectation failed
  bool is_error = false;     // a braid::Error left it,
  ErrorCode code{};          // with this code
  bool failed_here = false;  // the job failed by this process
  char text[512] = "";       // of the error
  char line[768] = "";       // what it would say last
  pid_t pid = 0;
};

inline int free_port() {
  // Below the ports that systems give to connections: those of tests beside may take such a port
  // before it is listened at.
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto port = static_cast<uint16_t>(10000 + random() % 22000);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (free) return port;
  }
  ADD_FAILURE() << "no free port";
  return 0;
}

struct ProcessOptions {
  int processes = 2;
  std::chrono::milliseconds timeout{10000}, grace{5000};
  std::string host = "127.0.0.1";
  int port = 0;                              // 0: a free one
  std::function<void(int, Launch&)> launch;  // changes what a process is told, may be empty
  // What the parent does meanwhile with the processes; may be empty.
  std::function<void(const std::vector<pid_t>&)> meanwhile;
};

inline void copy_text(char* to, size_t size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

// The life of one process of the job.
inline void live(const JobConfig& config, const std::function<void(Job&)>& fn, Ending& ending) {
  std::unique_ptr<Job> job;
  try {
    job = start_job(config);
    fn(*job);
    job->finish();
    ending.done = !testing::Test::HasFailure();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (job) job->fail(error);
    try {
      if (job) job->rethrow_error();
      std::rethrow_exception(error);
    } catch (const Error& e) {
      ending.is_error = true;
      ending.code = e.code();
      copy_text(ending.text, sizeof(ending.text), e.what());
    } catch (const std::exception& e) {
      copy_text(ending.text, sizeof(ending.text), e.what());
    } catch (...) {
      copy_text(ending.text, sizeof(ending.text), "an exception of unknown type");
    }
    if (job) {
      ending.failed_here = job->failed_here();
      copy_text(ending.line, sizeof(ending.line), job->last_words(ending.text));
    }
  }
}

// Runs fn(job) in so many processes; returns how they ended. None is left behind.
inline std::vector<Ending> run_processes(const ProcessOptions& options,
                                         const std::function<void(Job&)>& fn) {
  static constexpr int kMost = 64;
  const Shared<std::array<Ending, kMost>> endings;
  const int port = options.port ? options.port : free_port();
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (int p = 0; p < options.processes; ++p) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(240);  // whatever happens
      JobConfig config{.launch = {.source = LaunchSource::env,
                                  .process = p,
                                  .processes = options.processes,
                                  .host = options.host,
                                  .port = port},
                       .timeout = options.timeout,
                       .grace = options.grace};
      if (options.launch) options.launch(p, config.launch);
      Ending& ending = (*endings)[static_cast<size_t>(p)];
      config.say = [&ending](const std::string& line) {
        copy_text(ending.line, sizeof(ending.line), line);
      };
      live(config, fn, ending);
      std::fflush(nullptr);
      _exit(ending.done ? 0 : 1);
    }
    pids.push_back(pid);
  }
  if (options.meanwhile) options.meanwhile(pids);
  std::vector<Ending> result;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(240);
  for (int p = 0; p < options.processes; ++p) {
    const pid_t pid = pids[static_cast<size_t>(p)];
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "process " << p << " did not end";
        kill(pid, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    Ending ending = (*endings)[static_cast<size_t>(p)];
    ending.pid = pid;
    if (WIFEXITED(status)) ending.exit_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
    result.push_back(ending);
  }
  return result;
}

// Whether this build can have such jobs.
inline bool has_jobs() {
  return job_libraries().starts_with("UCX");
}

}  // namespace braid::job
