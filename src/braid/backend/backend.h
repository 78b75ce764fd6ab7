#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/program/beside.h"
#include "braid/program/launch_time.h"
#include "braid/program/wait.h"

namespace braid {

// Memory of a device; freed with the object. Zero-filled; a CPU commits pages at first
// touch.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

// A launch with resolved operands. Memory behind the spans and `part` outlives the Replay; its
// owner moves the views' data and sets the part between runs.
struct BoundOp {
  const Op* op = nullptr;
  std::span<const TensorView> in;
  std::span<const TensorView> out;
  BatchAxis axis = BatchAxis::none;
  // Rows of outputs beyond the live rows, up to their shapes, belong to nobody else.
  bool own_rows = true;
  BatchPart* part = nullptr;
  std::vector<BatchPart*> joined;  // parts of the further ops that a fused op joins
  std::byte* workspace = nullptr;
  DeviceMemory* arena = nullptr;  // holds the operands other than weights and states
  Stream stream = Stream::compute;
  std::vector<Wait> waits;    // as of Launch
  bool waits_inside = false;  // as of KernelInfo
  Beside beside;              // launches that may run beside
};

// Bytes that the host writes before a step, and their address in launches.
struct InputCopy {
  std::byte* device = nullptr;
  const std::byte* staging = nullptr;
  int64_t bytes = 0;  // a multiple of 4
};

// Parts of a Replay.
struct BoundStep {
  std::vector<BoundOp> launches;
  std::span<const BatchPart> parts;  // target of the launches' parts
  std::vector<InputCopy> inputs;     // none where the host writes the device's memory itself
  std::span<const LaunchGroup> groups = {};  // as of Schedule; read while binding
};

// A bound step that runs as often as wanted: no allocation and no decision is left for run().
class Replay {
 public:
  virtual ~Replay() = default;
  // Makes missing parts of the next run. If ranks wait for each other on the device, every rank has
  // prepared before any rank runs.
  virtual void prepare() {}
  // Runs every launch and returns when all have ended. Writes when each ran to `times` unless it is
  // empty: [launches]. The first error of any launch is rethrown.
  virtual void run(std::span<LaunchTime> times = {}) = 0;
  // Device memory beside the step's values; for people, in bytes.
  virtual std::string describe() const { return {}; }
  virtual int64_t device_bytes() const { return 0; }
};

// How a rank computes: memory, kernels, and streams that run the launches.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const KernelCatalog& catalog() const = 0;
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  // Host memory that the device reads and writes fast; null if all memory is such, and the host
  // works in device memory directly.
  virtual std::unique_ptr<DeviceMemory> allocate_staging(int64_t) { return nullptr; }
  // Copies a finished run's results into staging memory; needed only with such memory.
  virtual void read(std::byte*, const std::byte*, int64_t) {}
  // Copies `bytes`, left by a finished run, to other memory on the device, and returns when all
  // bytes have arrived.
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes) {
    std::memcpy(to, from, bytes);
  }
  virtual std::unique_ptr<Replay> bind(BoundStep step) = 0;
};

}  // namespace braid
