#pragma once

#include <array>
#include <functional>
#include <vector>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/phase_words.h"
#include "braid/backend/cuda/requests.h"
#include "braid/backend/cuda/upload_inputs.h"

namespace braid::cuda {

// A Schedule on one GPU. The first run puts its launches into the streams one by one, which also
// loads every kernel and lets libraries set themselves up; from the second on they are one CUDA
// graph. A step that was prepared is a graph from the first run on, because making it loads its
// kernels, and no rank may load one while another waits for it. Extents are read from device
// memory, so one graph serves all steps up to the capacity; where several micro-batches share
// buffers, rows move with their sizes, and new sizes make a new graph. Runs with times are never
// graphs, and join no launches.
class CudaReplay : public Replay {
 public:
  CudaReplay(CudaBackend& backend, BoundStep step);
  ~CudaReplay() override;  // waits for its streams: what it holds they may still use

  void prepare() override;
  void run(std::span<LaunchTime> times) override;

  // What a step that stays on the device does before and after the launches, in the compute stream.
  struct Hooks {
    std::function<void(const LaunchContext& context)> before;
    std::function<void(const LaunchContext& context)> after;
  };
  // A step without the host: no inputs are copied, and the hooks, the same each time, run with it.
  // Returns without waiting. begin_loop() copies the inputs that the host has written;
  // prepare_loop() makes the graph from the second step on, or `at_once`, and waits for what came
  // before.
  void begin_loop();
  void prepare_loop(const Hooks& hooks, bool at_once);
  void enqueue(const Hooks& hooks);
  // Whether the loop's next step is a graph that is there: enqueue() then waits for nothing.
  bool loop_ready() const { return !stale(looped_); }
  int64_t loop_launches() const { return looped_.launches; }  // of a step, once it is a graph

  // A step that is put in behind others, without waiting: its inputs are copied, then the hooks,
  // the same each time, run with it. prepare_put() makes the graph, and waits for what came before.
  void prepare_put(const Hooks& hooks);
  void put(const Hooks& hooks);

  // Waits for all that was put into the streams so far.
  void finish();

  // "2 graphs made, 4.0 MB of device memory; 192 launches joined in one"
  std::string describe() const override;
  int64_t device_bytes() const override { return stepped_.bytes + looped_.bytes + put_.bytes; }

 private:
  struct Captured {
    int runs = 0;
    OwnedGraphExec graph;
    int64_t launches = 0;          // in the graph
    int64_t bytes = 0;             // of device memory that it took
    std::vector<BatchPart> parts;  // of several micro-batches: their rows move with them
  };

  void upload(cudaStream_t stream) const;
  void give_phases();
  void ask_ahead();
  void join_launches(std::span<const LaunchArgs> args);
  void set_parts();
  bool stale(const Captured& captured) const;
  void play(Captured& captured, const Hooks& hooks, bool upload);
  void issue(const Hooks& hooks, bool upload, std::vector<OwnedEvent>* events);
  void capture(Captured& captured, const Hooks& hooks, bool upload);
  void run_timed(std::span<LaunchTime> times);
  cudaStream_t stream(Stream s) const { return backend_.stream(s); }

  CudaBackend& backend_;
  const bool by_stream_;  // words are written and waited for without kernels
  std::vector<BoundOp> ops_;
  std::vector<OpCall> calls_;
  std::vector<BoundKernel> kernels_;
  std::vector<JoinedLaunches> joined_;  // [launches]: in the place of each and those behind it
  std::span<const BatchPart> parts_;
  std::unique_ptr<DeviceMemory> host_parts_;    // pinned copy of parts_
  std::unique_ptr<DeviceMemory> device_parts_;  // where kernels read them
  UploadList uploads_;
  std::vector<InputCopy> large_uploads_;  // by the copy engine
  std::array<bool, kNumStreams> used_{};
  std::vector<OwnedEvent> done_;  // [launches], of those that another stream waits for
  struct Begins {
    int words = -1;  // in phases_, of the launch that waits; -1: none does
    uint32_t phase = 0;
  };
  std::vector<Begins> begins_;  // [launches] the phase of another launch that its end begins
  std::vector<int> words_of_;  // [launches] of its phases, in phases_; -1: it waits for none inside
  std::vector<std::unique_ptr<Requests>> requests_;  // [launches] null: none in others' place
  std::vector<int> asked_by_;                        // [launches] a launch; -1: itself
  std::unique_ptr<PhaseWords> phases_;               // null where no launch waits inside
  std::array<OwnedEvent, kNumStreams> fork_join_;
  OwnedEvent end_;
  Captured stepped_;
  Captured looped_;
  Captured put_;
  int num_graphs_ = 0;
};

}  // namespace braid::cuda
