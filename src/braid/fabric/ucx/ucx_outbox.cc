#include "braid/fabric/ucx/ucx_outbox.h"

#include <array>
#include <utility>

namespace braid::fabric {

UcxOutbox::UcxOutbox(UcxWorker& worker, int processes)
    : worker_(worker), lines_(static_cast<size_t>(processes)) {}

void UcxOutbox::put(int process, UcxHeader header, std::span<const std::byte> data,
                    const std::shared_ptr<UcxSend>& send) {
  std::lock_guard lock(worker_.mutex());
  flush(process);
  header.sequence = line(process).next++;
  if (!worker_.sends_at_once(process, std::ssize(data))) {
    return worker_.send(process, kFabricMessages, std::as_bytes(std::span(&header, 1)), data, send);
  }
  line(process).put = {header, data, send};
  ++waiting_;
}

void UcxOutbox::signal(int process, UcxHeader header) {
  std::lock_guard lock(worker_.mutex());
  header.sequence = line(process).next++;
  if (const auto put = std::exchange(line(process).put, {})) {
    --waiting_;
    const std::array both = {put->header, header};
    return worker_.send(process, kFabricMessages, std::as_bytes(std::span(both)), put->data,
                        put->send);
  }
  worker_.send_copy(process, kFabricMessages, std::as_bytes(std::span(&header, 1)), {});
}

void UcxOutbox::flush(int process) {
  if (waiting_ == 0) return;
  std::lock_guard lock(worker_.mutex());
  const auto put = std::exchange(line(process).put, {});
  if (!put) return;
  --waiting_;
  worker_.send(process, kFabricMessages, std::as_bytes(std::span(&put->header, 1)), put->data,
               put->send);
}

void UcxOutbox::flush() {
  if (waiting_ == 0) return;
  for (size_t p = 0; p < lines_.size(); ++p) flush(static_cast<int>(p));
}

}  // namespace braid::fabric
