#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "braid/fabric/job_error.h"
#include "braid/fabric/local/doorbell.h"
#include "braid/fabric/ucx/ucx_worker.h"

namespace braid::job {

// Subject of a control message.
enum class Note : int32_t {
  hello,        // from an arriving process to process 0: the process' address
  table,        // all addresses, from process 0
  collective,   // a value of agree, gather, broadcast or barrier
  record,       // the next step
  record_done,  // that many records are done
  phase,        // a process' present activity; also a sign of life
  error,        // the job has failed
  bye,          // this connection will close
};

// Control messages between the processes of a job, over UCX's active messages.
class Control final : public fabric::UcxReceiver {
 public:
  static constexpr unsigned kId = 0;  // of control messages at the worker
  // Called with notes without a waiter: hello, phase, error, bye, record_done. Under the worker's
  // lock: must not wait.
  using OnNote = std::function<void(int from, Note note, std::string_view bytes)>;

  Control(fabric::UcxWorker& worker, int process, const fabric::JobError& error, OnNote on_note);
  ~Control() override;

  void send(int to, Note note, int64_t sequence, std::string_view bytes);
  // As a first message to a host where process 0 listens; as UcxWorker::knock.
  bool knock(const std::string& host, int port, std::string_view bytes,
             std::chrono::nanoseconds deadline);
  // Waits for the note with that sequence number. Fails with kDeadline, naming the purpose, or with
  // kAborted after the job has failed.
  std::string wait(int from, Note note, int64_t sequence, std::chrono::nanoseconds deadline,
                   const std::string& what);
  // Waits until ready(). False where the deadline passed. Fails with kAborted likewise.
  bool wait_until(const std::function<bool()>& ready, std::chrono::nanoseconds deadline,
                  const std::string& what);
  void ring() { doorbell_.ring(); }

 private:
  struct Header {
    Note note;
    int32_t from;
    int64_t sequence;
  };
  struct Key {
    int from;
    Note note;
    int64_t sequence;
    auto operator<=>(const Key&) const = default;
  };
  void arrived(std::span<const std::byte> header, fabric::UcxPayload& payload) override;
  void deliver(const Header& header, std::string bytes);

  fabric::UcxWorker& worker_;
  const int process_;
  const fabric::JobError& error_;
  const OnNote on_note_;
  std::mutex mutex_;
  std::map<Key, std::string> inbox_;
  fabric::Doorbell doorbell_;
};

}  // namespace braid::job
