#pragma once

#include <functional>
#include <vector>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/launch_words.h"
#include "braid/backend/cuda/upload_inputs.h"

namespace braid::cuda {

// A Schedule on a GPU. The first run puts its launches into the streams one by one, which also
// loads every kernel and lets libraries set themselves up; later runs are a CUDA graph. A
// prepared step is a graph from the first run on: making the graph loads the kernels, and no rank
// may load a kernel while another rank waits for it. Extents are read from device memory, so a
// graph serves all steps up to the capacity. If several micro-batches share buffers, rows move
// with their sizes, and new sizes make a new graph. Runs with times are never graphs, and join no
// launches.
class CudaReplay : public Replay {
 public:
  CudaReplay(CudaBackend& backend, BoundStep step);
  ~CudaReplay() override;  // waits for its streams, which may still use its memory

  void prepare() override;
  void run(std::span<LaunchTime> times) override;

  // Work before and after the launches of a step that stays on the device, in the compute stream.
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
  // Whether the loop's next step has its graph: enqueue() then waits for nothing.
  bool loop_ready() const { return !stale(looped_); }
  int64_t loop_launches() const { return looped_.launches; }  // per step, once it is a graph

  // A step put in behind others, without waiting: its inputs are copied, then the hooks, equal each
  // time, run with the step. prepare_put() makes the graph, and waits for all earlier work.
  void prepare_put(const Hooks& hooks);
  void put(const Hooks& hooks);
  int64_t put_launches() const { return put_.launches; }  // likewise

  // Waits for everything in the streams.
  void finish();

  // "2 graphs made, 4.0 MB of device memory; 192 launches joined in one"
  std::string describe() const override;
  int64_t device_bytes() const override { return stepped_.bytes + looped_.bytes + put_.bytes; }

 private:
  struct Captured {
    int runs = 0;
    OwnedGraphExec graph;
    int64_t launches = 0;          // in the graph
    int64_t bytes = 0;             // its device memory
    std::vector<BatchPart> parts;  // several micro-batches': rows move with these
  };

  void upload(cudaStream_t stream) const;
  void give_phases();
  void ask_ahead();
  void join_launches(std::span<const LaunchGroup> groups, std::span<const LaunchArgs> args);
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
  struct Joined {
    int count = 0;  // of launches; 0: no group begins there
    BoundKernel kernel;
  };
  std::vector<Joined> joined_;  // [launches] in place of launch i and the launches behind it
  std::span<const BatchPart> parts_;
  std::unique_ptr<DeviceMemory> host_parts_;    // pinned copy of parts_
  std::unique_ptr<DeviceMemory> device_parts_;  // read by kernels
  UploadList uploads_;
  std::vector<InputCopy> engine_uploads_;  // large, odd or beyond the list: by the copy engine
  PerStream<bool> used_{};
  std::vector<OwnedEvent> done_;  // [launches], if another stream waits for the launch
  struct Begins {
    int launch = -1;  // the launch that waits; -1: no launch
    uint32_t phase = 0;
  };
  std::vector<Begins> begins_;  // [launches] another launch's phase, begun by launch i's end
  StepWords words_;
  std::vector<int> asked_by_;  // [launches] a launch; -1: itself
  PerStream<OwnedEvent> fork_join_;
  OwnedEvent end_;
  Captured stepped_;
  Captured looped_;
  Captured put_;
  int num_graphs_ = 0;
};

}  // namespace braid::cuda
