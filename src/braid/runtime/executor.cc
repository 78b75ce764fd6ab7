#include "braid/runtime/executor.h"

#include <algorithm>
#include <cstring>

namespace braid {

Executor::Executor(Program program, Schedule schedule, Backend& backend, const Resolver& resolve,
                   std::shared_ptr<DeviceMemory> arena)
    : program_(std::move(program)),
      schedule_(std::move(schedule)),
      backend_(backend),
      arena_(std::move(arena)) {
  if (!arena_) arena_ = backend.allocate(schedule_.memory.arena_bytes);
  BRAID_CHECK(arena_->bytes() >= schedule_.memory.arena_bytes, "an arena of {} bytes, {} needed",
              arena_->bytes(), schedule_.memory.arena_bytes);
  const size_t M = schedule_.micro_batches.size();
  for (size_t id = 0; id < program_.values.size(); ++id) {
    const Value& value = program_.values[id];
    if (value.kind != ValueKind::input ||
        schedule_.memory.offset(static_cast<ValueId>(id), 0) < 0) {
      continue;
    }
    inputs_[value.name] = whole(static_cast<ValueId>(id));
  }
  for (ValueId id : program_.outputs) outputs_.push_back(whole(id));
  parts_.resize(M * M);
  size_t operands = 0;
  for (const Launch& launch : schedule_.launches) {
    const Op& op = schedule_.op(program_, launch);
    operands += op.inputs.size() + op.outputs.size();
  }
  views_.reserve(operands);  // launches keep spans into it
  std::vector<BoundOp> launches;
  for (size_t i = 0; i < schedule_.launches.size(); ++i) {
    const Launch& launch = schedule_.launches[i];
    const Op& op = schedule_.op(program_, launch);
    const auto bind = [&](const std::vector<ValueId>& ids, int first, int count) {
      const Extents capacity = schedule_.capacity(program_, first, count);
      for (ValueId id : ids) {
        views_.push_back(view(id, first, capacity, resolve));
        if (first == 0 || !merged(id)) continue;
        const TensorView& rows = views_.back();
        moving_.push_back({.view = views_.size() - 1,
                           .base = rows.data,
                           .stride = rows.bytes() / rows.shape[0],
                           .axis = program_.value(id).type.axis,
                           .part = part_index(first, count)});
      }
    };
    // Joined ops have their own micro-batches; the fused op has the operands of all, in order.
    const auto bind_all = [&](std::vector<ValueId> Op::*ids) {
      const size_t begin = views_.size();
      if (launch.joined.empty()) {
        bind(op.*ids, launch.micro_batch, launch.num_micro_batches);
      } else {
        launch.for_each_op([&](int o, int mb) { bind(program_.ops[o].*ids, mb, 1); });
      }
      return std::span<const TensorView>(views_).subspan(begin);
    };
    BoundOp bound{.op = &op};
    bound.in = bind_all(&Op::inputs);
    bound.out = bind_all(&Op::outputs);
    bound.own_rows = launch.num_micro_batches == std::ssize(schedule_.micro_batches) ||
                     std::ranges::none_of(op.outputs, [&](ValueId id) { return merged(id); });
    bound.axis = program_.value(op.inputs[0]).type.axis;
    bound.part = &parts_[part_index(launch.micro_batch, launch.num_micro_batches)];
    for (const BatchOp& other : launch.joined) {
      bound.joined.push_back(&parts_[part_index(other.micro_batch, 1)]);
    }
    bound.arena = arena_.get();
    bound.stream = launch.stream;
    bound.waits = launch.waits;
    bound.waits_inside = launch.kernel.waits_inside;
    bound.beside = launch.beside;
    if (const int64_t offset = schedule_.memory.workspace_offset[i]; offset >= 0) {
      bound.workspace = arena_->data() + offset;
    }
    launches.push_back(std::move(bound));
  }
  replay_ = backend.bind({std::move(launches), parts_, stage_inputs(), schedule_.groups});
}

// Gives inputs a place in the host's memory where the arena is not.
std::vector<InputCopy> Executor::stage_inputs() {
  int64_t bytes = 0;
  std::vector<int64_t> begins;
  for (const auto& [name, view] : inputs_) {
    begins.push_back(bytes);
    bytes += round_up(view.bytes(), MemoryPlan::kAlignment);
  }
  staged_inputs_ = backend_.allocate_staging(bytes);
  std::vector<InputCopy> copies;
  if (!staged_inputs_) return copies;
  auto begin = begins.begin();
  for (auto& [name, view] : inputs_) {
    std::byte* host = staged_inputs_->data() + *begin++;
    copies.push_back({view.data, host, view.bytes()});
    view.data = host;
  }
  return copies;
}

void Executor::stage_outputs() {
  int64_t bytes = 0;
  for (const TensorView& view : outputs_) bytes += round_up(view.bytes(), MemoryPlan::kAlignment);
  staged_outputs_ = backend_.allocate_staging(bytes);
}

TensorView Executor::view(ValueId id, int micro_batch, const Extents& capacity,
                          const Resolver& resolve) const {
  if (id == kNoValue) return {};
  const Value& value = program_.value(id);
  if (value.kind == ValueKind::weight || value.kind == ValueKind::state) return resolve(value);
  const int64_t offset = schedule_.memory.offset(id, micro_batch);
  BRAID_CHECK(offset >= 0, "%{} has no place in the arena", id);
  return make_view(arena_->data() + offset, value.type.dtype, program_.type_of(id, capacity).shape);
}

// Whether micro-batches share a buffer.
bool Executor::merged(ValueId id) const {
  if (id == kNoValue) return false;
  const Value& value = program_.value(id);
  const bool in_arena = value.kind == ValueKind::input || value.kind == ValueKind::computed;
  return in_arena && value.type.axis != BatchAxis::none && schedule_.memory.merged[id];
}

size_t Executor::part_index(int first, int count) const {
  return (static_cast<size_t>(first) * schedule_.micro_batches.size()) +
         static_cast<size_t>(count) - 1;
}

const TensorView& Executor::input(std::string_view name) const {
  const auto it = inputs_.find(name);
  BRAID_CHECK(it != inputs_.end(), "no input '{}'", name);
  return it->second;
}

TensorView Executor::device_input(std::string_view name) const {
  for (size_t id = 0; id < program_.values.size(); ++id) {
    const Value& value = program_.values[id];
    if (value.kind == ValueKind::input && value.name == name) {
      return whole(static_cast<ValueId>(id));
    }
  }
  BRAID_CHECK(false, "no input '{}'", name);
  return {};
}

TensorView Executor::host_output(size_t index, int64_t rows) {
  TensorView result = output(index);
  BRAID_CHECK(rows <= result.shape[0], "{} of {} rows", rows, result.shape[0]);
  result.shape[0] = rows;
  if (!staged_inputs_) return result;
  if (!staged_outputs_) stage_outputs();
  std::byte* host = staged_outputs_->data();
  for (size_t i = 0; i < index; ++i) {
    host += round_up(outputs_[i].bytes(), MemoryPlan::kAlignment);
  }
  backend_.read(host, result.data, result.bytes());
  result.data = host;
  return result;
}

std::vector<int32_t> Executor::host_words(ValueId id, int micro_batch) {
  const TensorView words = view(id, micro_batch, program_.capacity, {});
  BRAID_CHECK(words.dtype == DType::i32, "words of {}", name(words.dtype));
  std::vector<int32_t> host(static_cast<size_t>(words.shape.elems()));
  auto* const to = reinterpret_cast<std::byte*>(host.data());
  if (staged_inputs_) {
    backend_.read(to, words.data, words.bytes());
  } else {
    std::memcpy(to, words.data, static_cast<size_t>(words.bytes()));
  }
  return host;
}

void Executor::set_counts(std::span<const Extents> counts) {
  const size_t M = schedule_.micro_batches.size();
  BRAID_CHECK(counts.size() == M, "{} of {} micro-batches", counts.size(), M);
  Extents begin;
  for (size_t i = 0; i < M; ++i) {
    const Extents &n = counts[i], &capacity = schedule_.micro_batches[i].capacity;
    for (const BatchAxis axis : kBatchAxes) {
      BRAID_CHECK(n[axis] <= capacity[axis], "micro-batch {}: {} {} over the capacity of {}", i,
                  to_string(axis), n[axis], capacity[axis]);
    }
    Extents sum;
    for (size_t j = i; j < M; ++j) {
      sum += counts[j];
      parts_[(i * M) + (j - i)] = {begin, sum};
    }
    begin += n;
  }
  for (const Moving& m : moving_) {
    views_[m.view].data = m.base + (parts_[m.part].begin.of(m.axis, 0) * m.stride);
  }
}

void Executor::prepare(std::span<const Extents> counts) {
  set_counts(counts);
  replay_->prepare();
}

void Executor::run(std::span<const Extents> counts, std::span<LaunchTime> times) {
  set_counts(counts);
  replay_->run(times);
}

}  // namespace braid
