#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/base/recently_used.h"
#include "braid/engine/diffusion/step_choice.h"
#include "braid/engine/world.h"
#include "braid/io/weight_source.h"
#include "braid/model/family.h"
#include "braid/parallel/attention/sequence_mesh.h"

namespace braid {

// The type of weights and of values on such a device, where nothing names another.
inline DType usual_dtype(const DeviceSpec& device) {
  return device.cuda ? DType::bf16 : DType::f32;
}

struct NetworkConfig {
  int threads = 1;                             // of each rank
  std::optional<SequenceMesh> mesh;            // may divide a sequence's rows; none: a single rank
  std::vector<SequenceMesh> further;           // over the same ranks, for Network::divide_by
  std::string schedule = "sequence_parallel";  // a strategy's name
  TextRows text = TextRows::split;             // of a step's text over the mesh
  fabric::LinkModel links;
  int64_t deadline_ms = 60000;  // of a wait for another rank
  DeviceSpec device;
  DType dtype = DType::bf16;  // of a GPU's weights and activations: bf16, f16 or f32
  // The network's weights, if random: a GPU makes them itself.
  const RandomWeights* random = nullptr;

  int ranks() const { return mesh ? mesh->ranks() : 1; }
};

// A network's ranks, with a host thread each.
struct NetworkRanks {
  NetworkRanks(WeightOf weight, const NetworkConfig& config);
  // Runs a step on ranks 0 .. n - 1, one or all; the first error ends the job. `times` is rank 0's.
  void run(std::span<const std::unique_ptr<Executor>> executors, std::span<LaunchTime> times);
  // move(r) for each rank with a part, many bytes by all threads at once.
  void each(std::span<const std::unique_ptr<Executor>> executors, size_t bytes,
            const std::function<void(size_t rank)>& move);

  std::unique_ptr<World> world;
  cpu::ThreadPool threads;
};

// A planned and bound Program. Its user sees whole values: inputs whose rows ranks divide are cut
// here, and such outputs joined.
class BoundNetwork {
 public:
  BoundNetwork(NetworkRanks& ranks, const std::vector<RankProgram>& lowered,
               std::vector<std::unique_ptr<Executor>> executors);

  // Inputs are written before each run, since a run may reuse their memory. Floats become the type
  // of the input, and those of an output f32. Throws std::logic_error on a wrong size. Of a value
  // with several frames, ranks have a share of each frame.
  void write(std::string_view input, std::span<const float> values, int64_t frames = 1);
  void write(std::string_view input, std::span<const int32_t> values);
  void run();
  // An output after run(), valid until any Program on this network runs again.
  std::span<const float> output(size_t index, int64_t frames = 1);
  size_t outputs() const { return executors_[0]->program().outputs.size(); }

  // As run(), launch by launch: when each of rank 0's ran. On GPUs slower than a graph.
  std::vector<LaunchTime> run_timed();

  // Simulated seconds of run().
  double predicted_seconds(const CostModel& cost) const;

  const Executor& executor(int rank) const { return *executors_.at(static_cast<size_t>(rank)); }

 private:
  // write(place in a rank's input, first value, how many), for all ranks' parts.
  void write_parts(std::string_view input, DType dtype, int64_t elems, int64_t frames,
                   const std::function<void(std::byte* to, int64_t from, int64_t n)>& write);
  TensorView host_output(size_t rank, size_t index);

  NetworkRanks& ranks_;
  std::vector<std::unique_ptr<Executor>> executors_;  // [ranks that have a part]
  std::map<std::string, Placement, std::less<>> inputs_;
  std::vector<Placement> outputs_;
  std::vector<float> gathered_;  // an output that ranks divide, or in another type
};

// A pipeline's component: weights in place, ranks to compute on, and a planned Program for each
// shape so far. A new shape costs a plan; nothing is compiled. One thread at a time.
class Network {
 public:
  // `weights` outlives it. `name` stands in messages: "transformer".
  Network(std::string name, const WeightSource& weights, const NetworkConfig& config);

  // A weight's dtype where the network computes, for writers of Programs: on CPUs the file's. Fails
  // with kNotFound on an unknown name, kUnsupported on a dtype beyond Braid.
  WeightDtype dtype_of() const;
  // Of values between a Program's ops: f32 on CPUs.
  DType activations() const { return device_.cuda ? dtype_ : DType::f32; }

  // Fails with kNotFound on a missing weight, kMalformed on another shape, kUnsupported on a tensor
  // unread by all Programs and not named by `ignores`.
  void check(std::span<const Program> programs,
             const std::function<bool(std::string_view tensor)>& ignores = {}) const;

  // The Program named `key`, made by `make` at first. Beyond kPlans the least recently used is
  // dropped. Rank 0 computes alone, or all ranks as `divide` says (the same at each use of a key).
  // The reference lives until the next plan().
  static constexpr size_t kPlans = 16;
  BoundNetwork& plan(const std::string& key, const std::function<Program()>& make,
                     const std::function<LayoutPlan(const Program&)>& divide = {});

  // Later plans divide rows by `mesh`, the configuration's or a further mesh, and `schedule`.
  // Earlier plans are dropped; weights stay in place.
  void divide_by(const SequenceMesh& mesh, const std::string& schedule,
                 TextRows text = TextRows::split);
  const std::optional<SequenceMesh>& mesh() const { return mesh_; }
  // Of steps; without a mesh all is on one rank.
  TextRows text() const { return mesh_ ? text_ : TextRows::split; }
  const std::string& schedule() const { return schedule_; }

  // Bytes of values that a device needs to compute the Program, by rank 0 alone or divided: a GPU
  // for its rank, the host for all ranks.
  int64_t value_bytes(const Program& program, const LayoutPlan& layout = {}) const;
  // Whether inputs stay as they were written until their plan is gone: a run may reuse a CPU's.
  bool keeps_inputs() const { return device_.cuda; }

  const std::string& name() const { return name_; }
  // Bytes of the network's weights on the computing device.
  int64_t weight_bytes() const;
  int64_t plans_made() const { return plans_made_; }

 private:
  PlannedForward planned(const Program& program, const LayoutPlan& layout) const;
  BoundNetwork bind(const Program& program, const LayoutPlan& layout);

  std::string name_;
  const WeightSource& weights_;
  const DeviceSpec device_;
  const DType dtype_;
  std::unique_ptr<NetworkRanks> ranks_;
  std::optional<SequenceMesh> mesh_;
  std::string schedule_;
  TextRows text_;
  RecentlyUsed<BoundNetwork> plans_{kPlans};
  int64_t plans_made_ = 0;
};

}  // namespace braid
