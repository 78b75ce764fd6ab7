#include "braid/engine/runner.h"

#include <bit>
#include <list>

#include "braid/backend/cpu/cpu_backend.h"
#include "braid/fabric/local/local_fabric.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/fusion.h"
#include "braid/parallel/lowering.h"
#include "braid/parallel/mesh.h"
#include "braid/parallel/tensor_parallel.h"

namespace braid {
namespace {

constexpr size_t kMaxCachedCapacities = 24;

// Powers of two, so that growing batches reuse a few plans.
int64_t bucket(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

Extents capacity_for(const Extents& sizes) {
  return {bucket(sizes.token), bucket(sizes.sequence), bucket(sizes.row)};
}

// The part of a weight or state that a rank keeps.
TensorView cut(const TensorView& whole, const Placement& placement, int rank) {
  if (!placement.is_shard()) return whole;
  const Range& part = placement.parts[static_cast<size_t>(rank)];
  if (placement.dim == 0) return slice_rows(whole, part.begin, part.end);
  BRAID_CHECK(placement.dim == 1 && whole.shape.rank() == 2, "cannot cut {} along {}",
              to_string(whole.shape), placement.dim);
  return slice_cols(whole, part.begin, part.end);
}

// What one rank has of its own: threads, kernels, its share of the KV cache, bound executors.
class Rank {
 public:
  Rank(const Model& model, fabric::Endpoint& endpoint, const RunnerConfig& config)
      : model_(model),
        rank_(endpoint.rank()),
        pool_(config.threads, config.threads * config.tp),
        table_(config.threads),
        backend_(table_, pool_) {
    cpu::add_cpu_kernels(table_);
    if (config.tp > 1) {
      comm_ =
          std::make_unique<fabric::Comm>(endpoint, fabric::Group::world(config.tp),
                                         fabric::CommConfig{.name = "tp", .lanes = config.threads});
      cpu::add_comm_kernels(table_, *comm_);
    }
  }

  std::unique_ptr<Executor> plan(const RankProgram& lowered) {
    std::map<std::string_view, Placement> placements;
    for (size_t i = 0; i < lowered.program.values.size(); ++i) {
      const Value& value = lowered.program.values[i];
      if (value.kind == ValueKind::weight) placements[value.name] = lowered.placements[i];
    }
    Program program = fuse(lowered.program, fusions());
    Schedule schedule = sequential_schedule(program, table_);
    return std::make_unique<Executor>(
        std::move(program), std::move(schedule), backend_, [&](const Value& value) {
          return value.kind == ValueKind::state
                     ? state(value)
                     : cut(model_.weight(value.name), placements.at(value.name), rank_);
        });
  }

 private:
  // States are allocated when the first Program names them, and shared by all.
  TensorView state(const Value& value) {
    const int64_t bytes =
        value.type.shape.rows() * bytes_of(value.type.dtype, value.type.shape[-1]);
    auto& memory = states_[value.name];
    if (!memory) memory = backend_.allocate(bytes);
    BRAID_CHECK(memory->bytes() == std::max<int64_t>(bytes, 1), "state {} changed its size",
                value.name);
    return make_view(memory->data(), value.type.dtype, value.type.shape);
  }

  const Model& model_;
  int rank_;
  cpu::ThreadPool pool_;
  cpu::KernelTable table_;
  std::unique_ptr<fabric::Comm> comm_;
  cpu::CpuBackend backend_;
  std::map<std::string, std::unique_ptr<DeviceMemory>> states_;
};

}  // namespace

struct Runner::Impl {
  struct Entry {
    Extents capacity;
    std::vector<std::unique_ptr<Executor>> executors;  // [tp]
  };

  Impl(const Model& m, const RunnerConfig& c)
      : model(m),
        config(c),
        fabric({.ranks = c.tp,
                .threads_per_rank = c.threads,
                .deadline = std::chrono::milliseconds(c.deadline_ms)}),
        rank_threads(c.tp, c.tp * c.threads) {
    plan = tensor_parallel(logical({1, 1, 1}), c.tp);
    for (int r = 0; r < c.tp; ++r) {
      ranks.push_back(std::make_unique<Rank>(model, fabric.endpoint(r), config));
    }
  }

  Program logical(const Extents& capacity) const {
    return model.forward({.capacity = capacity,
                          .pages = config.pages,
                          .page_size = config.page_size,
                          .pages_per_sequence = config.pages_per_sequence,
                          .kv_dtype = config.kv_dtype});
  }

  // The most recently used capacity is in front.
  const Entry& entry(const Extents& sizes) {
    const Extents capacity = capacity_for(sizes);
    for (auto it = cache.begin(); it != cache.end(); ++it) {
      if (it->capacity != capacity) continue;
      cache.splice(cache.begin(), cache, it);
      return cache.front();
    }
    Entry made{capacity, {}};
    for (const RankProgram& lowered : lower(logical(capacity), plan)) {
      made.executors.push_back(ranks[static_cast<size_t>(lowered.rank)]->plan(lowered));
    }
    if (cache.size() == kMaxCachedCapacities) cache.pop_back();
    cache.push_front(std::move(made));
    return cache.front();
  }

  const Model& model;
  const RunnerConfig config;
  fabric::LocalFabric fabric;
  cpu::ThreadPool rank_threads;
  LayoutPlan plan;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::list<Entry> cache;
};

Runner::Runner(const Model& model, const RunnerConfig& config)
    : impl_(std::make_unique<Impl>(model, config)) {}

Runner::~Runner() = default;

const Executor& Runner::executor(const Extents& sizes, int rank) {
  return *impl_->entry(sizes).executors.at(static_cast<size_t>(rank));
}

TensorView Runner::run(const Batch& batch) {
  impl_->fabric.rethrow_error();
  const Impl::Entry& entry = impl_->entry(batch.extents());
  impl_->rank_threads.run([&](const cpu::Team& team) {
    try {
      Executor& executor = *entry.executors[static_cast<size_t>(team.index)];
      batch.write(executor);
      executor.run(batch.extents());
    } catch (...) {
      impl_->fabric.abort(team.index, std::current_exception());
      throw;
    }
  });
  TensorView logits = entry.executors[0]->output(0);
  logits.shape[0] = batch.extents().row;
  return logits;
}

}  // namespace braid
