#pragma once

#include <string_view>

#include "braid/backend/backend.h"
#include "braid/fabric/fabric.h"

namespace braid::fabric {

// A rank's part of symmetric memory as a backend's memory: an arena whose values peers reach at
// equal offsets. Allocated collectively, as Endpoint::allocate says.
class SymmetricMemory : public DeviceMemory {
 public:
  SymmetricMemory(Endpoint& endpoint, int64_t bytes, std::string_view name)
      : endpoint_(endpoint), buffer_(endpoint.allocate<std::byte>(bytes > 0 ? bytes : 1, name)) {}

  std::byte* data() override { return buffer_.data(); }
  int64_t bytes() const override { return buffer_.size(); }
  // A local address in this memory as a place, valid for any rank in a verb.
  SymPtr<std::byte> place(const std::byte* address) const {
    const int64_t offset = address - buffer_.data();
    BRAID_CHECK(0 <= offset && offset < buffer_.size(), "an address outside symmetric memory");
    return buffer_.at(offset);
  }
  // The same place on `peer`, for stores that bypass the verbs. Throws as SymBuf::peer.
  std::byte* on_peer(const std::byte* address, int peer) const {
    return buffer_.peer(peer) + place(address).offset;
  }
  Endpoint& endpoint() const { return endpoint_; }

 private:
  Endpoint& endpoint_;
  SymBuf<std::byte> buffer_;
};

}  // namespace braid::fabric
