#pragma once

#include <map>
#include <mutex>

#include "braid/job/launch/launch.h"
#include "braid/job/ucx/control.h"

namespace braid::job {

// The hellos that process 0 gets, by the number that each process says it has.
class Hellos {
 public:
  // One more. A second one of the same number with other content is kept as a conflict.
  void add(int process, std::string bytes);
  size_t count();
  std::map<int, std::string> take();
  // Two processes that say the same number, empty where there are none.
  std::string conflict();

 private:
  std::mutex mutex_;
  std::map<int, std::string> all_;
  std::string conflict_;
};

// Hands `mine` (with the address of the worker in it) to all processes and returns theirs in order:
// process 0 listens at the launch's host, the others come to it; `connect` makes a connection to a
// process of that record. Fails with kDeadline, naming who did not come or why the host was not
// reached, and with kInvalidArgument where numbers or sizes of processes contradict each other.
std::vector<std::string> meet_at_host(
    const Launch& launch, const std::string& mine, fabric::UcxWorker& worker, Control& control,
    Hellos& hellos, const std::function<void(int process, const std::string& record)>& connect,
    std::chrono::milliseconds deadline);

}  // namespace braid::job
