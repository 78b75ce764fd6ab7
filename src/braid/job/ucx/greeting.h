#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace braid::job {

// First words between processes, over a plain socket: two versions of UCX misread each other's
// first message, and may crash.
struct Greeting {
  int process = 0;
  std::string host;
  std::string libraries;  // versions, as job_libraries() has them
  int port = 0;           // process 0's UCX listens there
};

// "libraries differ: rank 0 on A has 'UCX 1.13.1', rank 1 on B has 'UCX 1.20.1'", or empty.
std::string difference(const Greeting& first, const Greeting& other);

// Process 0's side: a thread answers greetings with its own.
class Greeter {
 public:
  // Listens at the port. Fails with kResource if another program has the port, or no address of the
  // host is this machine's.
  Greeter(const std::string& host, int port);
  ~Greeter();
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;

  // `on_refusal` is called by the thread once refusal() has a text.
  void answer(const Greeting& mine, std::function<void()> on_refusal);
  // The first difference() from an arrived greeting; empty without any.
  std::string refusal();

 private:
  void run();
  void answer_one(int fd);

  int fd_ = -1;
  Greeting mine_;
  std::function<void()> on_refusal_;
  std::mutex mutex_;
  bool stop_ = false;
  std::string refusal_;
  std::thread thread_;
};

// The others' side: process 0's greeting, or nothing without an answer in time. Strangers at the
// port count as absence.
std::optional<Greeting> greet(const std::string& host, int port, const Greeting& mine,
                              std::chrono::milliseconds deadline);

}  // namespace braid::job
