#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "braid/parallel/topology.h"
#include "braid/schedule/dependencies.h"
#include "braid/schedule/launch_order.h"
#include "braid/schedule/partition.h"
#include "braid/schedule/schedule.h"

namespace braid {

// A partition of a micro-batch.
struct Task {
  const Partition* partition = nullptr;
  int index = 0;  // of the partition
  int micro_batch = 0;

  // The rule behind the partition: task.is("all_reduce").
  bool is(std::string_view rule) const { return partition->rule == rule; }
  bool communicates() const { return partition->communicates; }
};

struct ExecuteOptions {
  Stream stream = Stream::compute;
  std::string_view replace;  // a fused op to replace the tasks' ops (ops/fusion.h)
};

// A strategy's counterpart during scheduling: the strategy asks for ready tasks and says which run
// next. Calls are recorded; nothing runs. Waits between streams follow from the data. Every misuse
// fails with kInvalidArgument, naming the op, the micro-batch and the rule.
class ScheduleContext {
 public:
  // `program` and `partitions` outlive the context. `price` may be empty: estimate() is then 0.
  ScheduleContext(const Program& program, std::vector<MicroBatch> micro_batches,
                  const std::vector<Partition>& partitions, const Topology& topology,
                  std::string strategy, std::function<double(const Op&, int micro_batch)> price);

  int micro_batches() const { return static_cast<int>(micro_batches_.size()); }
  const Extents& capacity(int micro_batch) const;
  const Topology& topology() const { return topology_; }

  // True once every task has been executed. Calls that lead nowhere are bounded: a strategy that
  // asks on and on without executing anything, or after everything was, is stopped.
  bool done();
  // Tasks of a micro-batch with all inputs made, in program order.
  std::vector<Task> ready(int micro_batch);
  // The same partition of another micro-batch, ready or not: for merged batches.
  Task twin(const Task& task, int micro_batch) const;
  // Runs the tasks, one after the other; the same partition of adjacent micro-batches runs as a
  // merged batch. With `replace`, all the ops run as a single fused op: neighbours of the same
  // micro-batches, or an op each of several micro-batches, of which none waits for another.
  void execute(const std::vector<Task>& tasks, const ExecuteOptions& options = {});
  void execute(std::initializer_list<Task> tasks, const ExecuteOptions& options = {}) {
    execute(std::vector<Task>(tasks), options);
  }
  // Seconds, by the cost model at the micro-batch's capacity.
  double estimate(const Task& task) const;

  // The recorded launches, without kernels yet; `replace` of each by name.
  struct Recording {
    std::vector<Launch> launches;
    std::vector<std::string> replacements;  // names, by Launch::replacement
  };
  // Fails where a task was never executed.
  Recording finish();

 private:
  // Index into the [ops, micro-batches] and [partitions, micro-batches] tables.
  size_t at(int index, int micro_batch) const {
    return (static_cast<size_t>(index) * micro_batches_.size()) + static_cast<size_t>(micro_batch);
  }
  void check_micro_batch(std::string_view call, int micro_batch) const;
  void check(const Task& task) const;
  // Tasks in the same launch: a partition of adjacent micro-batches.
  struct Group {
    int partition = 0;
    int first = 0;
    int count = 1;
  };
  static std::vector<Group> grouped(const std::vector<Task>& tasks);
  void begin(const Group& group);
  void join(const std::vector<Task>& tasks, const ExecuteOptions& options);
  void launch(Launch made);
  int replacement_index(std::string_view name);
  void count_call();
  [[noreturn]] void refuse(int op, int micro_batch, std::string_view rule) const;

  const Program& program_;
  const std::vector<MicroBatch> micro_batches_;
  const std::vector<Partition>& partitions_;
  const Topology topology_;
  const std::string strategy_;
  const std::function<double(const Op&, int)> price_;
  const Dependencies dependencies_;
  std::vector<int> inputs_left_;           // [partitions, micro-batches] partitions not done
  std::vector<std::vector<int>> readers_;  // [partitions] in the same micro-batch
  std::vector<std::vector<int>> readers_in_next_;  // [partitions], in continuing micro-batches
  std::vector<bool> executed_;                     // [partitions, micro-batches]
  std::vector<std::vector<int>> ready_;            // [micro-batches] partitions
  std::vector<int> launch_of_;                     // [ops, micro-batches]; -1: none
  LaunchOrder order_;
  Recording recording_;
  size_t tasks_left_ = 0;
  int64_t idle_calls_ = 0;
};

}  // namespace braid
