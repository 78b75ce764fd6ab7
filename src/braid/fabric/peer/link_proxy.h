#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/fabric/fabric.h"

namespace braid::fabric {

// The way from one GPU to another: a host thread that carries out transfers when a kernel asks for
// them, by copy engines. No SM takes part, so that what computes keeps all of them. DirectLink
// copies from GPU to GPU, AdapterLink through host memory, as between machines.
class LinkProxy {
 public:
  virtual ~LinkProxy() = default;
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  struct Piece {
    std::byte* dst = nullptr;
    const std::byte* src = nullptr;
    Block block;
  };

  // A transfer that can be asked for again and again, one at a time: who asks adds one to asked(),
  // with release at system scope, and has the data once done() is as much. Both are pinned words.
  // Made and destroyed while no device waits. It lives no longer than the proxy.
  class Job {
   public:
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    uint32_t* asked() const { return words_; }
    uint32_t* done() const { return words_ + 16; }
    // What it moves from now on. Only while it is not asked for.
    void set(const std::vector<Piece>& pieces);

    // For the proxy's thread: what one copy each moves, and how often it has begun.
    const std::vector<Piece>& chunks() const { return chunks_; }
    uint32_t started() const { return started_; }
    void tell_done();  // by the host

   private:
    friend class LinkProxy;
    explicit Job(LinkProxy& proxy);
    LinkProxy& proxy_;
    uint32_t* words_ = nullptr;  // pinned: asked, and a cache line later done
    uint32_t started_ = 0;
    std::vector<Piece> chunks_;
  };
  std::unique_ptr<Job> make_job() { return std::unique_ptr<Job>(new Job(*this)); }

 protected:
  // `on_error` gets what a copy failed with; the proxy then does nothing more. Chunks have at most
  // `chunk_bytes`.
  LinkProxy(int from_device, int64_t chunk_bytes, std::function<void(std::exception_ptr)> on_error);
  // By who derives from it: at the end of the constructor, and first in the destructor.
  void start();
  void stop();  // whatever is under way

  // Whether copies that were asked about have ended; throws what they failed with.
  static bool over(cudaError_t state);

  // On the proxy's thread. `job` is asked for once more; nobody sets it until it is done.
  virtual void begin(Job& job) = 0;
  // Whether something is under way that wants the thread's eye.
  virtual bool advance() = 0;
  // Nothing has been for long: the thread is about to sleep. Throws what a copy failed with.
  virtual void rest() {}

 private:
  void run();
  bool collect();

  const int from_device_;
  const int64_t chunk_bytes_;
  const std::function<void(std::exception_ptr)> on_error_;
  std::mutex mutex_;  // of jobs_ and what a Job holds
  std::vector<Job*> jobs_;
  std::atomic<bool> stop_{false};
  std::mutex stop_mutex_;
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

}  // namespace braid::fabric
