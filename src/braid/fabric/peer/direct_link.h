#pragma once

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/peer/link_proxy.h"

namespace braid::fabric {

// From a GPU to all others of its machine, in a stream that also says when copies are done: no host
// looks for their end. A copy that stands in a stream of a rank's own and waits can hold up other
// ranks' copies, in a hardware queue that they share.
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
