#include "braid/job/ucx/control.h"

#include <cstring>

#include "braid/base/error.h"

namespace braid::job {
namespace {

// A process may wait for a record as long as for a user: it sleeps soon.
constexpr cpu::WaitPolicy kWait{.spin = std::chrono::microseconds(5), .yields = 200};

std::span<const std::byte> bytes_of(const void* data, size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

bool is_waited_for(Note note) {
  return note == Note::table || note == Note::collective || note == Note::record;
}

}  // namespace

Control::Control(fabric::UcxWorker& worker, int process, const fabric::JobError& error,
                 OnNote on_note)
    : worker_(worker), process_(process), error_(error), on_note_(std::move(on_note)) {
  worker_.receive(kId, this);
}

Control::~Control() {
  worker_.receive(kId, nullptr);
}

void Control::send(int to, Note note, int64_t sequence, std::string_view bytes) {
  const Header header{note, process_, sequence};
  worker_.send_copy(to, kId, bytes_of(&header, sizeof(header)),
                    bytes_of(bytes.data(), bytes.size()));
}

bool Control::knock(const std::string& host, int port, std::string_view bytes,
                    std::chrono::nanoseconds deadline) {
  const Header header{Note::hello, process_, 0};
  return worker_.knock(host, port, kId, bytes_of(&header, sizeof(header)),
                       bytes_of(bytes.data(), bytes.size()), deadline);
}

void Control::arrived(std::span<const std::byte> raw, fabric::UcxPayload& payload) {
  Header header{};
  if (raw.size() != sizeof(header)) return;  // of another program
  std::memcpy(&header, raw.data(), sizeof(header));
  if (!payload.remote()) {
    deliver(header,
            {reinterpret_cast<const char*>(payload.data()), static_cast<size_t>(payload.bytes())});
    return;
  }
  const auto bytes = std::make_shared<std::string>(static_cast<size_t>(payload.bytes()), '\0');
  payload.receive(bytes->data(), [this, header, bytes](bool good) {
    if (good) deliver(header, std::move(*bytes));
  });
}

void Control::deliver(const Header& header, std::string bytes) {
  if (!is_waited_for(header.note)) {
    on_note_(header.from, header.note, bytes);
  } else {
    std::lock_guard lock(mutex_);
    inbox_[{header.from, header.note, header.sequence}] = std::move(bytes);
  }
  doorbell_.ring();
}

bool Control::wait_until(const std::function<bool()>& ready, std::chrono::nanoseconds deadline,
                         const std::string& what) {
  const bool ended = doorbell_.wait(kWait, fabric::Clock::now() + deadline, [&] {
    if (ready() || error_.is_set()) return true;
    return worker_.progress() && ready();
  });
  if (ready()) return true;
  if (ended) error_.throw_aborted(process_, fmt::format("wait for {},", what));
  return false;
}

std::string Control::wait(int from, Note note, int64_t sequence, std::chrono::nanoseconds deadline,
                          const std::string& what) {
  const Key key{from, note, sequence};
  const auto here = [&] {
    std::lock_guard lock(mutex_);
    return inbox_.contains(key);
  };
  if (!wait_until(here, deadline, what)) {
    fail(ErrorCode::kDeadline, "waited {:.3g} s for {} from process {}",
         std::chrono::duration<double>(deadline).count(), what, from);
  }
  std::lock_guard lock(mutex_);
  return std::move(inbox_.extract(key).mapped());
}

}  // namespace braid::job
