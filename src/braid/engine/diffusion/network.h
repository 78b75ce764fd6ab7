#pragma once

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/world.h"
#include "braid/io/weight_source.h"
#include "braid/model/family.h"

namespace braid {

// A Program of a network that is planned and bound, on one rank.
class BoundNetwork {
 public:
  explicit BoundNetwork(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}

  // Inputs are written before each run: their memory may hold other values after it. Throws
  // std::logic_error where the size is not the input's.
  void write(std::string_view input, std::span<const float> values);
  void write(std::string_view input, std::span<const int32_t> values);
  void run();
  // An output after run(), valid until the next one of any Program of this network.
  std::span<const float> output(size_t index);

  const Executor& executor() const { return *executor_; }

 private:
  void write_bytes(std::string_view input, std::span<const std::byte> bytes);

  std::unique_ptr<Executor> executor_;
};

// A component of a pipeline that computes: its weights in place, threads that run it, and the
// Programs that were planned for the shapes asked for. Nothing is compiled, so that a new shape
// costs a plan alone. One thread at a time.
class Network {
 public:
  // `weights` outlives it. `name` stands in messages: "transformer".
  Network(std::string name, const WeightSource& weights, int threads);

  // The dtype of a weight in the file, for those who write Programs. Fails with kNotFound where
  // there is none of that name, kUnsupported where Braid does not read it.
  WeightDtype dtype_of() const;

  // Fails with kMalformed where a weight of the Programs is missing or has another shape, with
  // kUnsupported where the file has a tensor that none of them reads and `ignores` does not name.
  void check(std::span<const Program> programs,
             const std::function<bool(std::string_view tensor)>& ignores = {}) const;

  // The Program that `key` names, made at first by `make`; the least recently used ones beyond
  // kPlans are dropped. The reference is good until the next plan().
  static constexpr size_t kPlans = 16;
  BoundNetwork& plan(const std::string& key, const std::function<Program()>& make);

  const std::string& name() const { return name_; }
  int64_t weight_bytes() const;
  int64_t plans_made() const { return plans_made_; }

 private:
  std::string name_;
  const WeightSource& weights_;
  std::unique_ptr<World> world_;
  std::list<std::pair<std::string, BoundNetwork>> plans_;  // the most recently used in front
  int64_t plans_made_ = 0;
};

}  // namespace braid
