#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "braid/tensor/view.h"

namespace braid {

// Aligned copies of tensors that a file holds at odd addresses, as safetensors headers without
// padding cause. A copy lives as long as this object, and takes the tensor's size in memory. Safe
// to use from several threads.
class AlignedCopies {
 public:
  // `view` itself if the address suits the elements; otherwise a view of a copy, made at the
  // address' first call.
  TensorView aligned(const TensorView& view);

 private:
  // Behind a pointer: the owner can move, and views stay valid.
  struct Copies {
    std::mutex mutex;
    std::map<const std::byte*, std::vector<std::byte>> by_address;
  };
  std::unique_ptr<Copies> copies_ = std::make_unique<Copies>();
};

}  // namespace braid
