#include "braid/fabric/peer/pending_copy.h"

#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/peer/nap_wait.h"

namespace braid::fabric {
namespace {

// A copy under way: an event behind the copy in a stream.
class PendingCopy final : public Transfer::Pending {
 public:
  PendingCopy(const CopyWaiter& waiter, cuda::OwnedEvent event, std::string what)
      : waiter_(waiter), event_(std::move(event)), what_(std::move(what)) {}
  // Copies cannot be taken back: they end by themselves, soon.
  ~PendingCopy() override { cudaEventSynchronize(event_.get()); }
  void wait() override {
    nap_wait(
        waiter_.error, waiter_.rank, waiter_.deadline,
        [&] {
          const cudaError_t error = cudaEventQuery(event_.get());
          if (error != cudaErrorNotReady) cuda::check_cuda(error, what_.c_str());
          return error == cudaSuccess;
        },
        [&] { return what_ + ": not complete"; });
  }

 private:
  const CopyWaiter waiter_;
  const cuda::OwnedEvent event_;
  const std::string what_;
};

}  // namespace

Transfer pending_copy(const CopyWaiter& waiter, int device, cudaStream_t stream, std::string what) {
  const cuda::DeviceScope guard(device);
  cuda::OwnedEvent event = cuda::make_event();
  cuda::record(event, stream);
  return Transfer(std::make_unique<PendingCopy>(waiter, std::move(event), std::move(what)));
}

}  // namespace braid::fabric
