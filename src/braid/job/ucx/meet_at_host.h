#pragma once

#include <map>
#include <mutex>

#include "braid/job/launch/launch.h"
#include "braid/job/ucx/control.h"

namespace braid::job {

// Hellos received by process 0, by each sender's number.
class Hellos {
 public:
  // Adds a hello. A second hello with an equal number and other content is kept as a conflict.
  void add(int process, std::string bytes);
  size_t count();
  std::map<int, std::string> take();
  // Two processes with equal numbers; empty without any.
  std::string conflict();

 private:
  std::mutex mutex_;
  std::map<int, std::string> all_;
  std::string conflict_;
};

// Hands `mine` (with the worker's address) to all processes and returns theirs in order: process 0
// listens at the launch's host, the others come, greet by a plain socket and then by UCX; `connect`
// makes a connection to a record's process. Fails with kDeadline, naming absent processes or the
// cause at the host, and with kInvalidArgument on contradicting numbers, sizes or libraries.
std::vector<std::string> meet_at_host(
    const Launch& launch, const std::string& mine, fabric::UcxWorker& worker, Control& control,
    Hellos& hellos, const std::function<void(int process, const std::string& record)>& connect,
    std::chrono::milliseconds deadline);

}  // namespace braid::job
