#include "braid/engine/diffusion/network.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "braid/engine/forward_plans.h"
#include "braid/io/quoted.h"
#include "braid/ops/fusion.h"
#include "braid/parallel/lowering.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {

void BoundNetwork::write_bytes(std::string_view input, std::span<const std::byte> bytes) {
  const TensorView& to = executor_->input(input);
  BRAID_CHECK(to.bytes() == std::ssize(bytes), "input '{}' has {} bytes, not {}", input, to.bytes(),
              bytes.size());
  std::memcpy(to.data, bytes.data(), bytes.size());
}

void BoundNetwork::write(std::string_view input, std::span<const float> values) {
  BRAID_CHECK(executor_->input(input).dtype == DType::f32, "input '{}' is not f32", input);
  write_bytes(input, std::as_bytes(values));
}

void BoundNetwork::write(std::string_view input, std::span<const int32_t> values) {
  BRAID_CHECK(executor_->input(input).dtype == DType::i32, "input '{}' is not i32", input);
  write_bytes(input, std::as_bytes(values));
}

void BoundNetwork::run() {
  executor_->run(executor_->program().capacity);
}

std::span<const float> BoundNetwork::output(size_t index) {
  const TensorView view = executor_->host_output(index, executor_->output(index).shape[0]);
  BRAID_CHECK(view.dtype == DType::f32, "output {} is not f32", index);
  return {view.as<const float>(), static_cast<size_t>(view.shape.elems())};
}

Network::Network(std::string name, const WeightSource& weights, int threads)
    : name_(std::move(name)),
      weights_(weights),
      world_(make_cpu_world([this](std::string_view weight) { return weights_.get(weight); },
                            {.ranks = 1, .threads = threads})) {}

WeightDtype Network::dtype_of() const {
  return [this](std::string_view weight) { return weights_.type(weight).dtype; };
}

void Network::check(std::span<const Program> programs,
                    const std::function<bool(std::string_view)>& ignores) const {
  std::set<std::string_view> used;
  for (const Program& program : programs) {
    for (const Value& value : program.values) {
      if (value.kind != ValueKind::weight) continue;
      weights_.type(value.name, value.type.shape);
      used.insert(value.name);
    }
  }
  for (const std::string_view tensor : weights_.names()) {
    if (used.contains(tensor) || (ignores && ignores(tensor))) continue;
    fail(ErrorCode::kUnsupported, "{}: the {} has no use for tensor {}", weights_.path(), name_,
         braid::quoted(tensor));
  }
}

BoundNetwork& Network::plan(const std::string& key, const std::function<Program()>& make) {
  const auto found = std::ranges::find(plans_, key, [](const auto& plan) { return plan.first; });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
    return plans_.front().second;
  }
  if (plans_.size() == kPlans) plans_.pop_back();
  const KernelCatalog& catalog = world_->rank(0).backend().catalog();
  PlannedForward planned;
  planned.lowered = lower(make(), {});
  planned.programs = {fuse(fuse(planned.lowered[0].program, fusions()), catalog.fusions())};
  plan_schedules(planned, *sequential_strategy(),
                 {.catalogs = {&catalog},
                  .micro_batches = {{.capacity = planned.programs[0].capacity}},
                  .topology = {},
                  .price = {}});
  ++plans_made_;
  plans_.emplace_front(key, BoundNetwork(std::move(world_->bind(std::move(planned))[0])));
  return plans_.front().second;
}

int64_t Network::weight_bytes() const {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : weights_.tensors()) bytes += tensor.bytes;
  return bytes;
}

}  // namespace braid
