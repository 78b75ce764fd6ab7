#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/world.h"
#include "braid/io/weight_source.h"
#include "braid/model/family.h"
#include "braid/parallel/attention/sequence_mesh.h"
#include "braid/parallel/lowering.h"

namespace braid {

struct NetworkConfig {
  int threads = 1;                   // of each rank
  std::optional<SequenceMesh> mesh;  // ranks that may divide a sequence's rows; none: one rank
  fabric::LinkModel links;
  int64_t deadline_ms = 60000;  // of a wait for another rank

  int ranks() const { return mesh ? mesh->ranks() : 1; }
};

// The ranks that compute a network, and a thread of the host for each.
struct NetworkRanks {
  NetworkRanks(WeightOf weight, const NetworkConfig& config);
  // Calls fn(rank) for ranks 0 .. n - 1 at once. The first error of any ends the job.
  void run(int n, const std::function<void(int rank)>& fn);

  std::unique_ptr<World> world;
  cpu::ThreadPool threads;
};

// A Program of a network that is planned and bound. Values are whole for its user: where ranks
// divide an input's or an output's rows, it is cut and put together here.
class BoundNetwork {
 public:
  BoundNetwork(NetworkRanks& ranks, const std::vector<RankProgram>& lowered,
               std::vector<std::unique_ptr<Executor>> executors);

  // Inputs are written before each run: their memory may hold other values after it. Throws
  // std::logic_error where the size is not the input's.
  void write(std::string_view input, std::span<const float> values);
  void write(std::string_view input, std::span<const int32_t> values);
  void run();
  // An output after run(), valid until the next one of any Program of this network.
  std::span<const float> output(size_t index);
  size_t outputs() const { return executors_[0]->program().outputs.size(); }

  const Executor& executor(int rank) const { return *executors_.at(static_cast<size_t>(rank)); }

 private:
  void write_bytes(std::string_view input, DType dtype, std::span<const std::byte> bytes);

  NetworkRanks& ranks_;
  std::vector<std::unique_ptr<Executor>> executors_;  // [ranks that have a part]
  std::map<std::string, Placement, std::less<>> inputs_;
  std::vector<Placement> outputs_;
  std::vector<float> gathered_;  // an output that ranks divide
};

// A component of a pipeline that computes: its weights in place, the ranks that compute it, and the
// Programs that were planned for the shapes asked for. Nothing is compiled, so that a new shape
// costs a plan alone. One thread at a time.
class Network {
 public:
  // `weights` outlives it. `name` stands in messages: "transformer".
  Network(std::string name, const WeightSource& weights, const NetworkConfig& config);

  // The dtype of a weight in the file, for those who write Programs. Fails with kNotFound where
  // there is none of that name, kUnsupported where Braid does not read it.
  WeightDtype dtype_of() const;

  // Fails with kMalformed where a weight of the Programs is missing or has another shape, with
  // kUnsupported where the file has a tensor that none of them reads and `ignores` does not name.
  void check(std::span<const Program> programs,
             const std::function<bool(std::string_view tensor)>& ignores = {}) const;

  // The Program that `key` names, made at first by `make`; the least recently used ones beyond
  // kPlans are dropped. Rank 0 computes it, or those among which `divide` divides it (the same for
  // each use of a key). The reference is good until the next plan().
  static constexpr size_t kPlans = 16;
  BoundNetwork& plan(const std::string& key, const std::function<Program()>& make,
                     const std::function<LayoutPlan(const Program&)>& divide = {});

  const std::string& name() const { return name_; }
  int64_t weight_bytes() const;
  int64_t plans_made() const { return plans_made_; }

 private:
  BoundNetwork bind(std::vector<RankProgram> lowered);

  std::string name_;
  const WeightSource& weights_;
  std::unique_ptr<NetworkRanks> ranks_;
  std::optional<SequenceMesh> mesh_;
  std::list<std::pair<std::string, BoundNetwork>> plans_;  // the most recently used in front
  int64_t plans_made_ = 0;
};

}  // namespace braid
