#include "braid/engine/timed_step.h"

#include <algorithm>
#include <chrono>

#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr int64_t kAlignment = 64;

int64_t packed_bytes(const ValueType& type) {
  return round_up(type.shape.rows() * bytes_of(type.dtype, type.shape[-1]), kAlignment);
}

}  // namespace

int64_t timed_weight_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const Value& value : program.values) {
    if (value.kind == ValueKind::weight && value.type.shape.rank() > 1) {
      bytes += packed_bytes(value.type);
    }
  }
  return bytes;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

TimedStep::TimedStep(Program program, const cpu::KernelTable& table, cpu::ThreadPool& pool,
                     std::span<std::byte> weights)
    : backend_(table, pool) {
  Plan plan{{std::move(program)}, {}};
  plan_schedules(plan, *sequential_strategy(),
                 {.catalogs = {&table},
                  .micro_batches = {{plan.programs[0].capacity}},
                  .topology = {},
                  .price = {}});
  size_t used = 0;
  const auto resolve = [&](const Value& value) {
    const int64_t bytes = packed_bytes(value.type);
    if (value.kind == ValueKind::state) {
      states_.push_back(backend_.allocate(bytes));
      return make_view(states_.back()->data(), value.type.dtype, value.type.shape);
    }
    if (value.type.shape.rank() == 1) {
      BRAID_CHECK(value.type.dtype == DType::f32, "{} is {}", value.name, to_string(value.type));
      norms_.emplace_back(value.type.shape[0], 1.0f);
      return make_view(reinterpret_cast<std::byte*>(norms_.back().data()), DType::f32,
                       value.type.shape);
    }
    BRAID_CHECK(used + static_cast<size_t>(bytes) <= weights.size(), "no room for weights");
    std::byte* data = weights.data() + used;
    used += bytes;
    return make_view(data, value.type.dtype, value.type.shape);
  };
  executor_ = std::make_unique<Executor>(std::move(plan.programs[0]), std::move(plan.schedules[0]),
                                         backend_, resolve);
}

std::vector<double> TimedStep::run(const Extents& counts, int runs,
                                   const std::function<void()>& evict) {
  std::vector<LaunchTime> times(executor_->schedule().launches.size());
  std::vector<std::vector<double>> samples(times.size());
  std::vector<double> overheads;
  executor_->run(counts);  // threads awake, pages touched
  for (int run = 0; run < runs; ++run) {
    if (evict) evict();
    const auto start = std::chrono::steady_clock::now();
    executor_->run({&counts, 1}, times);
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
    double busy = 0;
    // To the next launch's begin: time between two launches belongs to the first.
    for (size_t i = 0; i < times.size(); ++i) {
      const double end = i + 1 < times.size() ? times[i + 1].begin : times[i].end;
      samples[i].push_back(end - times[i].begin);
      busy += samples[i].back();
    }
    overheads.push_back(std::max(0.0, all.count() - busy));
  }
  overhead_ = median(std::move(overheads));
  std::vector<double> medians;
  for (std::vector<double>& s : samples) medians.push_back(median(std::move(s)));
  return medians;
}

}  // namespace braid
