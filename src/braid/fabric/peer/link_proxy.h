#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"

namespace braid::fabric {

// The way from one GPU to another: a host thread that carries out transfers when a device asks for
// them, by copy engines. No SM takes part, so that what computes keeps all of them. DirectLink
// copies from GPU to GPU, AdapterLink through host memory, as between machines. Every request is
// answered: one that takes longer than the deadline ends the job, as a copy that fails does, and
// once the job has failed nothing is moved. A second thread sees to that, which calls no CUDA: the
// first can be held up by whoever frees memory, who waits for a stream that waits for an answer.
class LinkProxy {
 public:
  virtual ~LinkProxy() = default;
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  // Whose way out it is.
  struct Sender {
    int rank = 0;
    int device = 0;
    std::chrono::nanoseconds deadline{};  // of one request
    JobError& error;                      // of the job; lives longer than the proxy
  };

  struct Piece {
    std::byte* dst = nullptr;
    const std::byte* src = nullptr;
    Block block;
  };

  // A transfer that can be asked for again and again, one at a time: who asks stores 1 to asked(),
  // with release at system scope, has the data once done() is 1, and stores 0 there. Both are
  // pinned words. Made and destroyed while no device waits. It lives no longer than the proxy.
  class Job {
   public:
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    uint32_t* asked() const { return words_; }
    uint32_t* done() const { return words_ + 16; }
    void ask();          // as above, by the host
    bool take_answer();  // by who asked: whether it is done
    // What it moves from now on. Only while it is not asked for.
    void set(const std::vector<Piece>& pieces);

    // For the proxy: what one copy each moves; who answers writes 64 bits at done(), behind the
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
    void take();                // what is asked for is under way
    bool in_use() const;
    LinkProxy& proxy_;
    uint32_t* words_ = nullptr;  // pinned: asked, and a cache line later done and answers so far
    std::atomic<uint32_t> started_{0};
    std::vector<Piece> chunks_;
    uint32_t seen_ = 0;  // the request that the second thread saw last, and when first
    std::chrono::steady_clock::time_point seen_at_{};
  };
  std::unique_ptr<Job> make_job() { return std::unique_ptr<Job>(new Job(*this)); }

 protected:
  // Chunks have at most `chunk_bytes`.
  LinkProxy(const Sender& sender, int64_t chunk_bytes);
  // By who derives from it: at the end of the constructor, and first in the destructor.
  void start();
  void stop();  // whatever is under way

  // Whether copies that were asked about have ended; throws what they failed with.
  static bool over(cudaError_t state);

  // On the proxy's first thread. `job` is asked for once more; nobody sets it until it is done.
  virtual void begin(Job& job) = 0;
  // Whether something is under way that wants the thread's eye.
  virtual bool advance() = 0;
  // Nothing has been for long: the thread is about to sleep. Throws what a copy failed with.
  virtual void rest() {}
  // The thread ends: what its copies still write has been written behind this.
  virtual void drain() = 0;

 private:
  void move();  // the first thread
  bool collect();
  void watch();  // the second
  void check_deadlines();
  void answer_all();

  const Sender sender_;
  const int64_t chunk_bytes_;
  std::mutex mutex_;  // of jobs_ and what is under way; not held while CUDA is called
  std::vector<Job*> jobs_;
  std::vector<Job*> taken_;  // collect()'s
  std::atomic<bool> moves_{false}, stop_{false};
  std::thread mover_, watcher_;
};

}  // namespace braid::fabric
