#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

// Active messages as UcxWorker sends and hands them out.
namespace braid::fabric {

// A message's data beside the header. Lives during UcxReceiver::arrived, unless
// taken.
class UcxPayload {
 public:
  UcxPayload() = default;
  UcxPayload(ucp_worker_h worker, void* data, int64_t bytes, uint64_t flags);
  UcxPayload(UcxPayload&& other) noexcept;
  UcxPayload& operator=(UcxPayload&& other) noexcept;
  ~UcxPayload();

  int64_t bytes() const { return bytes_; }
  // The bytes lie with the sender still: receive() brings them.
  bool remote() const { return remote_; }
  const std::byte* data() const { return data_; }  // [bytes] unless remote

  // A payload that outlives the call. Copies bytes that UCX keeps.
  UcxPayload take();
  // Brings the bytes of a remote payload to dst and then calls done(succeeded), perhaps at once.
  void receive(void* dst, std::function<void(bool)> done);

 private:
  friend class UcxWorker;
  void release();

  ucp_worker_h worker_ = nullptr;
  std::byte* data_ = nullptr;  // UCX's, or copy_'s
  int64_t bytes_ = 0;
  bool remote_ = false;
  bool keepable_ = false;  // UCX lets go of data_
  bool owned_ = false;     // taken: to be released
  bool gone_ = false;      // taken from, or received: UCX's data outlive its call
  std::vector<std::byte> copy_;
};

// Receiver of messages with a number. Called by the progress thread, one call at a time, with the
// worker locked: must not wait.
class UcxReceiver {
 public:
  virtual ~UcxReceiver() = default;
  virtual void arrived(std::span<const std::byte> header, UcxPayload& payload) = 0;
};

// A message under way.
struct UcxSend {
  std::vector<std::byte> header;
  std::vector<std::byte> packed;      // copy of the rows, without gaps, for a block with gaps
  std::shared_ptr<const void> keep;   // keeps a shared buffer alive until the send ends
  std::function<void()> done;         // may be empty
  std::atomic<bool> complete{false};  // the memory that is sent is free again
  std::atomic<bool> failed{false};    // set before `complete`
  std::shared_ptr<UcxSend> self;      // while UCX holds it
};

}  // namespace braid::fabric
