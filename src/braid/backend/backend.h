#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/program/beside.h"
#include "braid/program/launch_time.h"
#include "braid/program/wait.h"

namespace braid {

// Memory of a device; freed with the object. Zero-filled; on CPUs committed page by page as it is
// touched.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

// A launch with its operands resolved. What the spans and `part` point to outlives the Replay; its
// owner moves the views' data and sets the part between runs.
struct BoundOp {
  const Op* op = nullptr;
  std::span<const TensorView> in;
  std::span<const TensorView> out;
  BatchAxis axis = BatchAxis::none;
  // Rows of its outputs beyond the live ones, up to their shapes, belong to nobody else.
  bool own_rows = true;
  BatchPart* part = nullptr;
  std::byte* workspace = nullptr;
  DeviceMemory* arena = nullptr;  // in which the operands lie that are neither weights nor states
  Stream stream = Stream::compute;
  std::vector<Wait> waits;    // as of Launch
  bool waits_inside = false;  // as of KernelInfo
  Beside beside;              // what may run at the same time
};

// Bytes that the host writes before a step, and where the launches read them.
struct InputCopy {
  std::byte* device = nullptr;
  const std::byte* staging = nullptr;
  int64_t bytes = 0;  // a multiple of 4
};

// What a Replay is made of.
struct BoundStep {
  std::vector<BoundOp> launches;
  std::span<const BatchPart> parts;  // what the launches' parts point into
  std::vector<InputCopy> inputs;     // none where the host writes the device's memory itself
  bool ranks_alike = false;          // the other ranks' operands surely have this one's shapes
};

// A bound step that runs as often as wanted: no allocation and no decision is left for run().
class Replay {
 public:
  virtual ~Replay() = default;
  // Makes what the next run needs that is not there yet. Where ranks wait for each other on the
  // device, every rank has prepared before any runs.
  virtual void prepare() {}
  // Runs every launch and returns when all have ended. Writes when each ran to `times` unless it is
  // empty: [launches]. The first error of any launch is rethrown.
  virtual void run(std::span<LaunchTime> times = {}) = 0;
  // What it holds on the device beside its step's values; for people, and in bytes.
  virtual std::string describe() const { return {}; }
  virtual int64_t device_bytes() const { return 0; }
};

// How a rank computes: memory, kernels, and streams that run the launches.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const KernelCatalog& catalog() const = 0;
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  // Memory of the host that the device reads and writes fast; null where all of its memory is so,
  // and the host works in it directly.
  virtual std::unique_ptr<DeviceMemory> allocate_staging(int64_t) { return nullptr; }
  // Copies what a finished run left, into staging memory; needed only where there is such.
  virtual void read(std::byte*, const std::byte*, int64_t) {}
  virtual std::unique_ptr<Replay> bind(BoundStep step) = 0;
};

}  // namespace braid
