#include "braid/engine/rank.h"

#include "braid/kernels/cpu/register.h"

namespace braid {
namespace {

// The part of a weight that a rank keeps.
TensorView cut(const TensorView& whole, const Placement& placement, int rank) {
  if (!placement.is_shard()) return whole;
  const Range& part = placement.parts[static_cast<size_t>(rank)];
  if (placement.dim == 0) return slice_rows(whole, part.begin, part.end);
  BRAID_CHECK(placement.dim == 1 && whole.shape.rank() == 2, "cannot cut {} along {}",
              to_string(whole.shape), placement.dim);
  return slice_cols(whole, part.begin, part.end);
}

}  // namespace

Rank::Rank(const Model& model, fabric::Fabric& fabric, int rank, int threads, int total_threads)
    : model_(model),
      rank_(rank),
      pool_(threads, total_threads),
      table_(threads),
      backend_(table_, pool_,
               [&fabric, rank](std::exception_ptr error) { fabric.abort(rank, error); }) {
  cpu::add_cpu_kernels(table_);
  const int ranks = fabric.world_size();
  if (ranks == 1) return;
  cpu::StreamComms comms{};
  for (Stream stream : kStreams) {
    const auto s = static_cast<size_t>(stream);
    comms_[s] = std::make_unique<fabric::Comm>(
        fabric.endpoint(rank), fabric::Group::world(ranks),
        fabric::CommConfig{.name = fmt::format("tp.{}", to_string(stream)),
                           .lanes = table_.threads(stream)});
    comms[s] = comms_[s].get();
  }
  cpu::add_comm_kernels(table_, comms);
}

std::unique_ptr<Executor> Rank::bind(const RankProgram& lowered, Program fused, Schedule schedule) {
  std::map<std::string_view, const Placement*> placements;
  for (size_t i = 0; i < lowered.program.values.size(); ++i) {
    const Value& value = lowered.program.values[i];
    if (value.kind == ValueKind::weight) placements[value.name] = &lowered.placements[i];
  }
  return std::make_unique<Executor>(
      std::move(fused), std::move(schedule), backend_, [&](const Value& value) {
        return value.kind == ValueKind::state
                   ? state(value)
                   : cut(model_.weight(value.name), *placements.at(value.name), rank_);
      });
}

// States are allocated when the first Program names them, and shared by all.
TensorView Rank::state(const Value& value) {
  const int64_t bytes = bytes_of(value.type);
  auto& memory = states_[value.name];
  if (!memory) memory = backend_.allocate(bytes);
  BRAID_CHECK(memory->bytes() == std::max<int64_t>(bytes, 1), "state {} changed its size",
              value.name);
  return make_view(memory->data(), value.type.dtype, value.type.shape);
}

}  // namespace braid
