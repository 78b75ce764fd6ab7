#pragma once

#include <memory>
#include <vector>

#include "braid/ops/kernel_catalog.h"

namespace braid {

// Memory of a device; freed with the object. Zero-filled, and committed page by page as it is
// touched.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

// A launch with its operands resolved. The views stay valid as long as the Replay made of them.
struct BoundOp {
  const Op* op = nullptr;
  std::vector<TensorView> in;
  std::vector<TensorView> out;
  BatchAxis axis = BatchAxis::none;
  std::byte* workspace = nullptr;
};

// A bound step that runs as often as wanted: no allocation and no decision is left for run().
class Replay {
 public:
  virtual ~Replay() = default;
  // Runs every launch over the given extents and returns when the outputs are there.
  virtual void run(const Extents& extents) = 0;
};

// How a rank computes: memory, kernels, and the order-preserving execution of launches.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const KernelCatalog& catalog() const = 0;
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  virtual std::unique_ptr<Replay> bind(std::vector<BoundOp> launches) = 0;
};

}  // namespace braid
