#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/comm/device/across_kernels.h"
#include "braid/kernels/cuda/comm/device/device_comm.h"

// The path of a DeviceComm's collectives between emulated machines. A rank's message for a peer
// lies packed in the rank's memory. A kernel asks for the message, the link's proxy carries the
// message (paced by the link's speed), or within a machine a kernel does, into packed memory of the
// peer. A barrier of flags before says that old messages were read, a barrier after that all
// arrived. Capturable.
namespace braid::cuda {

class AcrossMachines {
 public:
  explicit AcrossMachines(DeviceComm& comm);
  ~AcrossMachines();
  AcrossMachines(const AcrossMachines&) = delete;
  AcrossMachines& operator=(const AcrossMachines&) = delete;

  // Allocates memory for exchanges called `key`, once; on every rank in the same order, at a
  // quiescent point. `put` [P]: bytes for each peer; `slot` the most of any two ranks. `alike`: all
  // peers get the same.
  void prepare(const std::string& key, std::span<const int64_t> put, int64_t slot, bool alike);

  // y of `p`; send, received, slot, rank and ranks of `p` are filled in here. `finish` is place or
  // sum. Counts the moved bytes under `tag`.
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
