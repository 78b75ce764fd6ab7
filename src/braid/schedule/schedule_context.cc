#include "braid/schedule/schedule_context.h"

#include <algorithm>

#include "braid/ops/fusion.h"
#include "braid/schedule/launch_waits.h"

namespace braid {
namespace {

constexpr int kMaxIdleCallsPerTask = 4;

void add_once(std::vector<int>& list, int item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

}  // namespace

ScheduleContext::ScheduleContext(const Program& program, std::vector<MicroBatch> micro_batches,
                                 const std::vector<Partition>& partitions, const Topology& topology,
                                 std::string strategy, std::function<double(const Op&, int)> price)
    : program_(program),
      micro_batches_(std::move(micro_batches)),
      partitions_(partitions),
      topology_(topology),
      strategy_(std::move(strategy)),
      price_(std::move(price)),
      dependencies_(dependencies_of(program)),
      readers_(partitions.size()),
      readers_in_next_(partitions.size()),
      ready_(micro_batches_.size()) {
  const size_t M = micro_batches_.size();
  const int count = static_cast<int>(partitions.size());
  std::vector<int> partition_of(program.ops.size());
  for (int p = 0; p < count; ++p) {
    for (int op = partitions[p].begin; op < partitions[p].end; ++op) {
      partition_of[op] = p;
    }
  }
  inputs_left_.assign(partitions.size() * M, 0);
  executed_.assign(partitions.size() * M, false);
  launch_of_.assign(program.ops.size() * M, -1);
  tasks_left_ = partitions.size() * M;
  for (int p = 0; p < count; ++p) {
    std::vector<int> same, continued;
    for (int op = partitions[p].begin; op < partitions[p].end; ++op) {
      for (int need : dependencies_.same[op]) {
        if (const int q = partition_of[need]; q != p) add_once(same, q);
      }
      for (int need : dependencies_.continued[op]) {
        add_once(continued, partition_of[need]);
      }
    }
    for (int q : same) readers_[q].push_back(p);
    for (int q : continued) readers_in_next_[q].push_back(p);
    int chain = 0;  // earlier micro-batches that this micro-batch continues
    for (int mb = 0; mb < static_cast<int>(M); ++mb) {
      chain = micro_batches_[mb].continues ? chain + 1 : 0;
      inputs_left_[at(p, mb)] =
          static_cast<int>(same.size()) + (static_cast<int>(continued.size()) * chain);
      if (inputs_left_[at(p, mb)] == 0) ready_[mb].push_back(p);
    }
  }
}

const Extents& ScheduleContext::capacity(int micro_batch) const {
  check_micro_batch("capacity", micro_batch);
  return micro_batches_[micro_batch].capacity;
}

bool ScheduleContext::done() {
  count_call();
  return tasks_left_ == 0;
}

std::vector<Task> ScheduleContext::ready(int micro_batch) {
  count_call();
  check_micro_batch("ready", micro_batch);
  std::vector<Task> tasks;
  for (int p : ready_[micro_batch]) {
    tasks.push_back({&partitions_[p], p, micro_batch});
  }
  return tasks;
}

Task ScheduleContext::twin(const Task& task, int micro_batch) const {
  check(task);
  check_micro_batch("twin", micro_batch);
  Task other = task;
  other.micro_batch = micro_batch;
  return other;
}

double ScheduleContext::estimate(const Task& task) const {
  check(task);
  double seconds = 0;
  for (int op = task.partition->begin; op < task.partition->end; ++op) {
    if (price_) seconds += price_(program_.ops[op], task.micro_batch);
  }
  return seconds;
}

std::vector<ScheduleContext::Group> ScheduleContext::grouped(const std::vector<Task>& tasks) {
  std::vector<Group> groups;
  for (const Task& task : tasks) {
    if (!groups.empty()) {
      Group& last = groups.back();
      if (last.partition == task.index && last.first + last.count == task.micro_batch) {
        ++last.count;
        continue;
      }
    }
    groups.push_back({task.index, task.micro_batch, 1});
  }
  return groups;
}

void ScheduleContext::execute(const std::vector<Task>& tasks, const ExecuteOptions& options) {
  if (tasks.empty()) {
    count_call();
    return;
  }
  for (const Task& task : tasks) check(task);
  if (static_cast<size_t>(options.stream) >= kNumStreams) {
    fail(ErrorCode::kInvalidArgument, "schedule '{}': execute() on stream {}: there are {}",
         strategy_, static_cast<int>(options.stream), kNumStreams);
  }
  const Fusion* fusion = find_replacement(options.replace);
  if (fusion != nullptr && fusion->joins) return join(tasks, options);
  const std::vector<Group> groups = grouped(tasks);
  if (options.replace.empty()) {
    for (const Group& group : groups) {
      begin(group);
      const Partition& partition = partitions_[group.partition];
      for (int op = partition.begin; op < partition.end; ++op) {
        launch({.op = op,
                .micro_batch = group.first,
                .num_micro_batches = group.count,
                .stream = options.stream});
      }
    }
    return;
  }
  const Group& first = groups[0];
  Launch fused{.op = partitions_[first.partition].begin,
               .num_ops = 0,
               .replacement = replacement_index(options.replace),
               .micro_batch = first.first,
               .num_micro_batches = first.count,
               .stream = options.stream};
  for (const Group& group : groups) {
    const Partition& partition = partitions_[group.partition];
    if (partition.begin != fused.op_end() || group.first != first.first ||
        group.count != first.count) {
      refuse(partition.begin, group.first,
             fmt::format("'{}' replaces ops that follow each other, of the same micro-batches",
                         options.replace));
    }
    begin(group);
    fused.num_ops += partition.end - partition.begin;
  }
  launch(std::move(fused));
}

// All are ready before the first begins: none waits for another.
void ScheduleContext::join(const std::vector<Task>& tasks, const ExecuteOptions& options) {
  Launch fused{.op = tasks[0].partition->begin,
               .replacement = replacement_index(options.replace),
               .micro_batch = tasks[0].micro_batch,
               .stream = options.stream};
  for (const Task& task : tasks) {
    const int op = task.partition->begin;
    if (task.partition->end > op + 1) {
      refuse(
          op, task.micro_batch,
          fmt::format("'{}' joins single ops of micro-batches, and this one has ops behind it in "
                      "its partition",
                      options.replace));
    }
    if (inputs_left_[at(task.index, task.micro_batch)] > 0) {
      refuse(op, task.micro_batch,
             fmt::format("'{}' joins ops that wait for none of each other, and inputs of this one "
                         "are not made",
                         options.replace));
    }
    if (&task != &tasks[0]) fused.joined.push_back({op, task.micro_batch});
  }
  for (const Task& task : tasks) begin({task.index, task.micro_batch, 1});
  launch(std::move(fused));
}

void ScheduleContext::begin(const Group& group) {
  const int op = partitions_[group.partition].begin;
  // By micro-batch: a merged launch may write states that its later micro-batches continue.
  for (int mb = group.first; mb < group.first + group.count; ++mb) {
    const size_t self = at(group.partition, mb);
    if (executed_[self]) refuse(op, mb, "every op runs once, and this one ran before");
    if (inputs_left_[self] != 0) {
      refuse(op, mb, "inputs are made before they are read, and some of this one's are not");
    }
    executed_[self] = true;
    auto& ready = ready_[mb];
    ready.erase(std::ranges::find(ready, group.partition));
    --tasks_left_;
    const auto unlock = [&](int partition, int in) {
      if (--inputs_left_[at(partition, in)] > 0) return;
      auto& list = ready_[in];
      list.insert(std::ranges::lower_bound(list, partition), partition);
    };
    for (int p : readers_[group.partition]) unlock(p, mb);
    for (int next = mb + 1; next < micro_batches(); ++next) {
      if (!micro_batches_[next].continues) break;
      for (int p : readers_in_next_[group.partition]) unlock(p, next);
    }
  }
  idle_calls_ = 0;
}

void ScheduleContext::launch(Launch made) {
  const int self = static_cast<int>(recording_.launches.size());
  std::vector<int> needs;
  const auto need = [&](int other, int mb) {
    const int launch = launch_of_[at(other, mb)];
    if (launch >= 0 && launch != self) needs.push_back(launch);
  };
  made.for_each_op([&](int op, int mb) {
    launch_of_[at(op, mb)] = self;
    for (int other : dependencies_.same[op]) need(other, mb);
    for (int from = mb; from > 0 && micro_batches_[from].continues;) {
      --from;
      for (int other : dependencies_.continued[op]) need(other, from);
    }
  });
  made.waits = waits_of(program_, recording_.launches, order_, made, std::move(needs));
  order_.add(made.stream, made.waits);
  recording_.launches.push_back(std::move(made));
}

int ScheduleContext::replacement_index(std::string_view name) {
  const auto it = std::ranges::find(recording_.replacements, name);
  if (it == recording_.replacements.end()) {
    recording_.replacements.emplace_back(name);
    return static_cast<int>(recording_.replacements.size()) - 1;
  }
  return static_cast<int>(it - recording_.replacements.begin());
}

ScheduleContext::Recording ScheduleContext::finish() {
  for (size_t p = 0; p < partitions_.size() && tasks_left_ > 0; ++p) {
    for (int mb = 0; mb < micro_batches(); ++mb) {
      if (executed_[at(static_cast<int>(p), mb)]) continue;
      refuse(partitions_[p].begin, mb, "every op runs once, and this one was never executed");
    }
  }
  return std::move(recording_);
}

void ScheduleContext::check_micro_batch(std::string_view call, int micro_batch) const {
  if (micro_batch >= 0 && micro_batch < micro_batches()) return;
  fail(ErrorCode::kInvalidArgument, "schedule '{}': {}({}): there are {} micro-batches", strategy_,
       call, micro_batch, micro_batches());
}

void ScheduleContext::check(const Task& task) const {
  const bool known = task.partition != nullptr && 0 <= task.index &&
                     task.index < static_cast<int>(partitions_.size()) && 0 <= task.micro_batch &&
                     task.micro_batch < micro_batches() &&
                     task.partition == &partitions_[task.index];
  if (!known) {
    fail(ErrorCode::kInvalidArgument, "schedule '{}': a task that is not from ready(): {} of {}",
         strategy_, task.index, task.micro_batch);
  }
}

void ScheduleContext::count_call() {
  const auto tasks = static_cast<int64_t>(executed_.size());
  if (++idle_calls_ <= (kMaxIdleCallsPerTask * tasks) + 64) return;
  if (tasks_left_ == 0) {
    fail(ErrorCode::kInvalidArgument,
         "schedule '{}': {} calls after every op was executed: wanted "
         "is a strategy that ends",
         strategy_, idle_calls_);
  }
  for (size_t p = 0; p < partitions_.size(); ++p) {
    for (int mb = 0; mb < micro_batches(); ++mb) {
      if (!executed_[at(static_cast<int>(p), mb)]) {
        refuse(partitions_[p].begin, mb,
               fmt::format("{} calls in a row executed nothing, and this op is not done",
                           idle_calls_));
      }
    }
  }
}

void ScheduleContext::refuse(int op, int micro_batch, std::string_view rule) const {
  const Op& what = program_.ops[op];
  fail(ErrorCode::kInvalidArgument, "schedule '{}': {} at '{}', micro-batch {}: {}", strategy_,
       what.def->kind, what.scope, micro_batch, rule);
}

}  // namespace braid
