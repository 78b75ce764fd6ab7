#pragma once

#include <map>
#include <memory>
#include <string>

#include "braid/backend/backend.h"
#include "braid/parallel/lowering.h"
#include "braid/runtime/executor.h"

namespace braid {

// What one rank has of its own: a backend, its part of the weights, its share of the KV cache, and
// the memory that steps work in, which all plans of the rank share since they run one by one.
class Rank {
 public:
  virtual ~Rank() = default;
  virtual Backend& backend() = 0;

  // Binds a rank's Program and Schedule to its weights and states. Steps that ranks take together
  // share an arena; one `beside` them leaves what they computed as it is.
  std::unique_ptr<Executor> bind(const RankProgram& lowered, Program fused, Schedule schedule,
                                 bool beside = false);

 protected:
  // The part of a weight that this rank keeps, where its kernels read it.
  virtual TensorView weight(const Value& value, const Placement& placement) = 0;
  // Memory for steps to work in that ranks take together; a step that this rank takes alone works
  // in the backend's.
  virtual std::shared_ptr<DeviceMemory> allocate_arena(int64_t bytes) {
    return backend().allocate(bytes);
  }

 private:
  TensorView state(const Value& value);

  std::map<std::string, std::unique_ptr<DeviceMemory>> states_;
  std::shared_ptr<DeviceMemory> arena_;  // the largest so far
  std::shared_ptr<DeviceMemory> arena_beside_, arena_alone_;
};

// The part of a weight that a rank keeps, in place.
TensorView cut(const TensorView& whole, const Placement& placement, int rank);

}  // namespace braid
