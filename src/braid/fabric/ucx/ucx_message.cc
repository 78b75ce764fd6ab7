#include "braid/fabric/ucx/ucx_message.h"

#include <utility>

namespace braid::fabric {
namespace {

struct Receiving {
  std::function<void(bool)> done;
};

void received(void* request, ucs_status_t status, size_t /*bytes*/, void* user) {
  const std::unique_ptr<Receiving> receiving(static_cast<Receiving*>(user));
  receiving->done(status == UCS_OK);
  ucp_request_free(request);
}

}  // namespace

UcxPayload::UcxPayload(ucp_worker_h worker, void* data, int64_t bytes, uint64_t flags)
    : worker_(worker),
      data_(static_cast<std::byte*>(data)),
      bytes_(bytes),
      remote_((flags & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0),
      keepable_((flags & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {}

UcxPayload::UcxPayload(UcxPayload&& other) noexcept {
  *this = std::move(other);
}

UcxPayload& UcxPayload::operator=(UcxPayload&& other) noexcept {
  if (this == &other) return *this;
  release();
  worker_ = other.worker_;
  copy_ = std::move(other.copy_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = other.bytes_;
  remote_ = other.remote_;
  keepable_ = other.keepable_;
  owned_ = std::exchange(other.owned_, false);
  gone_ = other.gone_;
  return *this;
}

UcxPayload::~UcxPayload() {
  release();
}

void UcxPayload::release() {
  if (std::exchange(owned_, false) && data_) ucp_am_data_release(worker_, data_);
}

UcxPayload UcxPayload::take() {
  UcxPayload taken;
  taken.worker_ = worker_;
  taken.bytes_ = bytes_;
  taken.remote_ = remote_;
  if (remote_ || keepable_) {
    taken.data_ = std::exchange(data_, nullptr);
    taken.owned_ = true;
    gone_ = true;
  } else if (bytes_ > 0) {
    taken.copy_.assign(data_, data_ + bytes_);
    taken.data_ = taken.copy_.data();
  }
  return taken;
}

void UcxPayload::receive(void* dst, std::function<void(bool)> done) {
  ucp_request_param_t param{};
  auto receiving = std::make_unique<Receiving>(Receiving{std::move(done)});
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = received;
  param.user_data = receiving.get();
  owned_ = false;  // UCX releases it
  gone_ = true;
  void* const request = ucp_am_recv_data_nbx(worker_, std::exchange(data_, nullptr), dst,
                                             static_cast<size_t>(bytes_), &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) {
    receiving->done(request == nullptr);
  } else {
    static_cast<void>(receiving.release());  // received() has it
  }
}

}  // namespace braid::fabric
