#pragma once

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/peer/link_proxy.h"

namespace braid::fabric {

// From a GPU to all others of its machine, in a stream that also signals the end of copies: no host
// watches copies. A waiting copy in a rank's own stream could hold up other ranks' copies in a
// shared hardware queue.
class DirectLink final : public LinkProxy {
 public:
  explicit DirectLink(const Sender& sender);
  ~DirectLink() override;

 private:
  void begin(Job& job) override;
  bool advance() override { return false; }
  void rest() override;
  void drain() override;

  cuda::OwnedStream stream_;  // of the sender's device
};

}  // namespace braid::fabric
