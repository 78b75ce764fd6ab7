#pragma once

#include <memory>
#include <optional>

#include "braid/fabric/fabric.h"
#include "braid/fabric/peer/device_verbs.h"
#include "braid/fabric/peer/link_proxy.h"

namespace braid::fabric {

// A rank on a GPU, in any fabric of GPUs. Launchers of communication kernels take this type.
class DeviceEndpoint : public Endpoint {
 public:
  const DeviceVerbs& verbs() const { return verbs_; }
  int device() const { return verbs_.device; }

  // An address in this rank's memory as a symmetric place, if a segment of the world holds it.
  virtual std::optional<SymPtr<std::byte>> place(const void* address) const = 0;
  // Address at which this rank's kernels reach a peer's copy of a local symmetric address, for
  // signal words: also across emulated machines, whose data goes by transfers. Null without a path,
  // or for an address outside symmetric memory.
  virtual std::byte* reach(const void* local, int peer) const = 0;
  // A transfer between this rank and a peer, to be asked for by this rank's streams, kernels or
  // host when it is due: its own data out, or the peer's in.
  virtual std::unique_ptr<LinkProxy::Job> make_transfer(int peer, bool put) = 0;
  // A peer's end for a piece of such a transfer.
  virtual std::byte* transfer_end(SymPtr<std::byte> at, int peer) const = 0;

 protected:
  DeviceVerbs verbs_;  // filled in by the fabric's constructor
};

}  // namespace braid::fabric
