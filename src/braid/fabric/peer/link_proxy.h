#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"

namespace braid::fabric {

// The path from a GPU to another: a host thread that runs transfers on a device's request, by copy
// engines. No SM takes part, so computation keeps all SMs. DirectLink copies from GPU to GPU,
// AdapterLink through host memory, as between machines. Every request is answered: a request past
// the deadline ends the job, like a failed copy, and after a failure nothing moves. A second
// thread, without CUDA calls, watches deadlines: the first thread may be held up by a thread that
// frees memory and waits for a stream that waits for an answer.
class LinkProxy {
 public:
  virtual ~LinkProxy() = default;
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  // Owner of the outgoing path.
  struct Sender {
    int rank = 0;
    int device = 0;
    std::chrono::nanoseconds deadline{};  // for a single request
    JobError& error;                      // of the job; lives longer than the proxy
  };

  struct Piece {
    std::byte* dst = nullptr;
    const std::byte* src = nullptr;
    Block block;
  };

  // A transfer for repeated requests, one at a time. A requester stores 1 to asked(), with release
  // at system scope, has the data after done() is 1, and stores 0 there. Both are pinned words.
  // Made and destroyed while no device waits. Lives no longer than the proxy.
  class Job {
   public:
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    uint32_t* asked() const { return words_; }
    uint32_t* done() const { return words_ + 16; }
    // Names the transfer in errors, before the first request.
    void set_name(std::string name) { name_ = std::move(name); }
    void ask();          // as above, by the host
    bool take_answer();  // for the requester: whether the transfer is done
    // Sets the transfer's pieces. Only while no request is open.
    void set(const std::vector<Piece>& pieces);

    // For the proxy: chunks of one copy each. The answer is 64 bits at done(), written behind the
    // data, by a stream or by the host.
    const std::vector<Piece>& chunks() const { return chunks_; }
    int64_t bytes() const;
    uint64_t answer() const { return uint64_t{started_} << 32 | 1; }
    void tell_done();  // by the host

   private:
    friend class LinkProxy;
    explicit Job(LinkProxy& proxy);
    bool is_asked() const;
    bool is_under_way() const;  // begun, and not answered
    void take();                // requested work is under way
    bool in_use() const;
    LinkProxy& proxy_;
    uint32_t* words_ = nullptr;  // pinned: asked, and a cache line later done and answers so far
    std::atomic<uint32_t> started_{0};
    std::vector<Piece> chunks_;
    uint32_t seen_ = 0;  // the request that the second thread saw last, and when first
    std::chrono::steady_clock::time_point seen_at_{};
    std::string name_;
  };
  std::unique_ptr<Job> make_job() { return std::unique_ptr<Job>(new Job(*this)); }
  // Open requests, for an error; empty: none, or the list is in use. Any thread, without CUDA
  // calls.
  std::string describe_open();

 protected:
  // Chunks have at most `chunk_bytes`.
  LinkProxy(const Sender& sender, int64_t chunk_bytes);
  // For derived classes: start() at the constructor's end, stop() first in the destructor.
  void start();
  void stop();  // whatever is under way

  // Whether the copies in question have ended; throws the copies' failure.
  static bool over(cudaError_t state);

  // On the proxy's first thread. `job` is asked for once more; nobody sets `job` until it is done.
  virtual void begin(Job& job) = 0;
  // Whether something is under way that wants the thread's eye.
  virtual bool advance() = 0;
  // Nothing has been for long: the thread is about to sleep. Throws a copy's error.
  virtual void rest() {}
  // The thread ends: all later writes by its copies are complete.
  virtual void drain() = 0;
  // How far copies are, for an error, on the second thread.
  virtual std::string progress() const { return ""; }
  // Lives while the first thread is inside a CUDA call: such a call may wait for a lock.
  class InCall {
   public:
    InCall(LinkProxy& proxy, const char* call) : proxy_(proxy) { proxy_.in_call_ = call; }
    ~InCall() { proxy_.in_call_ = nullptr; }

   private:
    LinkProxy& proxy_;
  };

 private:
  void move();  // the first thread
  bool collect();
  void watch();  // the second
  void check_deadlines();
  std::string describe(const Job& job) const;  // an open request
  void answer_all();

  const Sender sender_;
  const int64_t chunk_bytes_;
  std::mutex mutex_;  // guards jobs_ and transfers under way; not held during CUDA calls
  std::vector<Job*> jobs_;
  std::vector<Job*> taken_;  // collect()'s
  std::atomic<bool> moves_{false}, stop_{false};
  std::atomic<const char*> in_call_{nullptr};
  std::thread mover_, watcher_;
};

}  // namespace braid::fabric
