#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "braid/backend/backend.h"
#include "braid/backend/cuda/early_words.h"

namespace braid::cuda {

class CudaBackend;

// A launch's words in device memory: words that begin the launch's phases (Wait::phase), and words
// by which the launch asks for transfers of other launches. Such a transfer is a push of a part of
// the launch's results, after the part is written; or the pull behind a pull, so that the link does
// not rest while the stream hears of the first pull's end.
class LaunchWords {
 public:
  // Words of the phases: the last phase that may begin, a count of expired waits, and the waiting
  // time in the newest step, in microseconds over all CTAs together.
  static constexpr int kRanOut = 1, kWaited = 2, kPhaseWords = 3;
  struct Memory {  // on the device
    uint32_t phases[kPhaseWords];
    EarlyWords asked;
  };

  // Device, for the launch's kernel; null: the launch waits for no phase, or asks for nothing.
  uint32_t* phases() const { return waits_ ? memory_->phases : nullptr; }
  EarlyWords* asked() const { return asks_ ? &memory_->asked : nullptr; }
  // Adds a word by which a transfer is asked for, while the step is bound. The host calls `ready`
  // each time before the launch is put into a stream.
  void add(uint32_t* word, std::function<void()> ready);
  void prepare() const;  // before the launch is issued
  std::span<uint32_t* const> words() const { return {asked_.words, asked_.num_words}; }
  void write(cudaStream_t stream) const;  // asks by the stream, in place of a kernel

 private:
  friend class StepWords;
  bool waits_ = false, asks_ = false;
  Memory* memory_ = nullptr;
  EarlyWords asked_;
  std::vector<std::function<void()>> ready_;
};

// The words of a step's launches in one block of device memory. First add() for each launch that
// has words, then lay_out(); launches are bound between lay_out() and upload().
class StepWords {
 public:
  // With `by_stream` streams write words by themselves (stream_words.h), else kernels do.
  StepWords(CudaBackend& backend, size_t launches, bool by_stream);

  void add(size_t launch, bool waits, bool asks);
  void lay_out();
  void upload() const;
  LaunchWords* of(size_t launch) const { return launches_[launch].get(); }  // null: has none
  bool waits(size_t launch) const { return of(launch) != nullptr && of(launch)->waits_; }
  bool asks(size_t launch) const { return of(launch) != nullptr && of(launch)->asks_; }

  // In streams, capturable; nothing where no launch waits inside. `reset`: no phase may begin (at a
  // step's begin: a rank without rows of the last phases hears of them after its call). `begin`: a
  // phase may begin, after everything ahead in the stream. `fetch`: tells the host of expired waits
  // (at a step's end).
  void reset(cudaStream_t stream) const;
  void begin(size_t launch, uint32_t phase, cudaStream_t stream) const;
  void fetch(cudaStream_t stream) const;
  // After a step: fails with kDeadline if a wait ran out.
  void check() const;

 private:
  LaunchWords::Memory* memory() const {
    return reinterpret_cast<LaunchWords::Memory*>(memory_->data());
  }

  CudaBackend& backend_;
  const bool by_stream_;
  int count_ = 0;       // of launches with words
  bool waits_ = false;  // some launch waits inside
  std::vector<std::unique_ptr<LaunchWords>> launches_;
  std::unique_ptr<DeviceMemory> memory_;   // LaunchWords::Memory [count_]
  std::unique_ptr<DeviceMemory> ran_out_;  // pinned u32 [count_]
};

}  // namespace braid::cuda
