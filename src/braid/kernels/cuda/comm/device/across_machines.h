#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/comm/device/across_kernels.h"
#include "braid/kernels/cuda/comm/device/device_comm.h"

// The way of a DeviceComm's collectives between emulated machines: every rank's message for a peer
// lies packed in this rank's memory, is asked for by a kernel, goes by the link's proxy (paced
// where the link has a speed) or, within a machine, by a kernel, and lies packed in the peer's
// memory. A barrier of flags before it says that all have read what came last, one after it that
// all is there. Capturable.
namespace braid::cuda {

class AcrossMachines {
 public:
  explicit AcrossMachines(DeviceComm& comm);
  ~AcrossMachines();
  AcrossMachines(const AcrossMachines&) = delete;
  AcrossMachines& operator=(const AcrossMachines&) = delete;

  // What exchanges called `key` need, the first time; on every rank in the same order, at a
  // quiescent point. `put` [P]: bytes for each peer; `slot` the most of any two ranks. `alike`: all
  // peers get the same.
  void prepare(const std::string& key, std::span<const int64_t> put, int64_t slot, bool alike);

  // y of `p`, whose send, received, slot, rank and ranks are filled in here. `finish` is one of
  // place and sum. Counts what is moved under `tag`.
  void run(const std::string& key, AcrossParams p, AcrossKernel finish, fabric::Tag tag,
           const LaunchContext& context);

 private:
  struct Slots;
  struct Exchange;
  DeviceComm& comm_;
  std::shared_ptr<Slots> slots_;  // the largest so far
  std::map<std::string, std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace braid::cuda
