#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "braid/fabric/ucx/ucx_wire.h"
#include "braid/fabric/ucx/ucx_worker.h"

namespace braid::fabric {

// Puts and signals to other processes, numbered in the order of the calls. A put by TCP waits here
// for the signal behind the put: both are one message then, with one system call. Another verb to
// the process, or flush(), sends a waiting put alone.
class UcxOutbox {
 public:
  UcxOutbox(UcxWorker& worker, int processes);

  // `data` outlives the send.
  void put(int process, UcxHeader header, std::span<const std::byte> data,
           const std::shared_ptr<UcxSend>& send);
  void signal(int process, UcxHeader header);
  void flush(int process);
  void flush();  // to all processes

 private:
  struct Waiting {
    UcxHeader header;
    std::span<const std::byte> data;
    std::shared_ptr<UcxSend> send;
  };
  struct Line {
    uint64_t next = 0;  // sequence
    std::optional<Waiting> put;
  };
  Line& line(int process) { return lines_[static_cast<size_t>(process)]; }

  UcxWorker& worker_;        // its lock guards all
  std::vector<Line> lines_;  // [processes]
  std::atomic<int> waiting_{0};
};

}  // namespace braid::fabric
