// A kernel fails on a rank in the middle of a step, on any stream: the step ends on every rank with
// the kernel's error.
#include "braid/backend/cpu/cpu_backend.h"
#include "braid/fabric/comm.h"
#include "braid/fabric/local/run_ranks.h"
#include "braid/kernels/cpu/register.h"
#include "braid/runtime/executor.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/runtime/serial_backend.h"
#include "unit/schedule/planned_decoder.h"

namespace braid::testing_dist {
namespace {

using namespace testing_schedule;

struct Fault {
  int rank = 0;
  std::string_view kind;  // of op
  int call = 0;           // ops of the kind before
  bool operator==(const Fault&) const = default;
};

struct Injected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The real kernels; a chosen call throws on thread 0 of a chosen rank.
class FaultyRank {
 public:
  FaultyRank(fabric::Endpoint& endpoint, int ranks, int threads, const Fault& fault)
      : pool_(threads, 16), table_(threads), backend_(table_, pool_) {
    cpu::add_cpu_kernels(table_);
    cpu::StreamComms comms{};
    for (Stream stream : {Stream::compute, Stream::comm}) {
      const auto s = static_cast<size_t>(stream);
      comms_[s] = std::make_unique<fabric::Comm>(
          endpoint, fabric::Group::world(ranks),
          fabric::CommConfig{.name = fmt::format("tp.{}", to_string(stream)),
                             .lanes = table_.threads(stream)});
      comms[s] = comms_[s].get();
    }
    cpu::add_comm_kernels(table_, comms);
    if (fault.rank != endpoint.rank()) return;
    cpu::Kernel kernel = table_.at(fault.kind);
    const auto bind = kernel.bind;
    kernel.bind = [this, bind, fault](const cpu::LaunchArgs& args) -> cpu::BoundKernel {
      return [this, fault, run = bind(args)](const cpu::Team& team) {
        if (team.index == 0 && calls_++ == fault.call) throw Injected(std::string(fault.kind));
        run(team);
      };
    };
    table_.add(fault.kind, kernel);
  }

  const KernelCatalog& catalog() const { return table_; }
  std::unique_ptr<Executor> bind(const Program& program, const Schedule& schedule) {
    return std::make_unique<Executor>(program, schedule, backend_, std::ref(memory_));
  }

 private:
  cpu::ThreadPool pool_;
  cpu::KernelTable table_;
  cpu::CpuBackend backend_;
  std::array<std::unique_ptr<fabric::Comm>, kNumStreams> comms_;
  testing_runtime::Memory memory_;
  std::atomic<int> calls_{0};
};

void write_inputs(const Executor& executor, int64_t tokens) {
  const auto fill = [&](const char* name, auto&& value) {
    const TensorView& view = executor.input(name);
    for (int64_t i = 0; i < view.shape.elems(); ++i) view.as<int32_t>()[i] = value(i);
  };
  fill("token_ids", [](int64_t i) { return static_cast<int32_t>(i % 50); });
  fill("positions", [](int64_t i) { return static_cast<int32_t>(i); });
  fill("slots", [](int64_t i) { return static_cast<int32_t>(i); });
  // One prompt; its second half continues the first.
  fill("q_start", [&](int64_t i) { return static_cast<int32_t>(i * tokens); });
  fill("kv_len", [&](int64_t i) { return static_cast<int32_t>((i + 1) * tokens); });
  fill("page_table", [](int64_t i) { return static_cast<int32_t>(i % 4); });
  fill("rows", [&](int64_t i) { return static_cast<int32_t>((i + 1) * tokens - 1); });
}

// Runs two steps; returns the error that ended them.
std::string step_with(const std::string& strategy_name, int ranks, int threads,
                      const Fault& fault) {
  const auto strategy = find_strategy(strategy_name);
  const bool sharded = strategy->layout({}).token_sharded_residual;
  const SequenceInfo prompt = {.tokens = 1000};
  const bool divides = strategy->split({{&prompt, 1}, 1000, ranks}).size() > 1;
  const int64_t tokens = 12;
  const Planned shape = planned(
      *strategy,
      {.ranks = ranks, .micro_batches = divides ? 2 : 1, .sharded = sharded, .tokens = tokens});
  fabric::LocalFabric world(
      {.ranks = ranks, .threads_per_rank = threads + 2, .deadline = std::chrono::seconds(30)});
  std::vector<std::unique_ptr<FaultyRank>> all(static_cast<size_t>(ranks));
  try {
    fabric::run_ranks(world, [&](fabric::Endpoint& endpoint) {
      const auto r = static_cast<size_t>(endpoint.rank());
      all[r] = std::make_unique<FaultyRank>(endpoint, ranks, threads, fault);
      // Kernels are the rank's own: scratch is theirs to choose.
      Schedule schedule = shape.schedules[r];
      for (size_t i = 0; i < schedule.launches.size(); ++i) {
        Launch& l = schedule.launches[i];
        l.kernel = all[r]->catalog().find(shape.programs[r], schedule.op(shape.programs[r], l),
                                          l.stream, schedule.capacity(shape.programs[r], l));
        schedule.memory.workspace_offset[i] = -1;
        if (l.kernel.workspace_bytes == 0) continue;
        schedule.memory.arena_bytes = round_up(schedule.memory.arena_bytes, 64);
        schedule.memory.workspace_offset[i] = schedule.memory.arena_bytes;
        schedule.memory.arena_bytes += l.kernel.workspace_bytes;
      }
      const auto executor = all[r]->bind(shape.programs[r], schedule);
      write_inputs(*executor, tokens);
      std::vector<Extents> counts;
      for (const MicroBatch& mb : shape.micro_batches) {
        (void)mb;
        counts.push_back({.token = tokens,
                          .sequence = 1,
                          .row = 1,
                          .shard = even_part(tokens, ranks, endpoint.rank()).size()});
      }
      for (int step = 0; step < 2; ++step) executor->run(counts);
    });
  } catch (const Injected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return fmt::format("another error: {}", error.what());
  }
  return "no error";
}

TEST(ScheduleFaults, AKernelThatFailsEndsTheStepOnEveryRank) {
  for (const std::string& name : strategy_names()) {
    const bool sharded = find_strategy(name)->layout({}).token_sharded_residual;
    std::vector<std::string_view> kinds = {"attention", "gated_linear"};
    kinds.push_back(name == "gemm_collective" ? "linear_all_reduce"
                    : sharded                 ? "reduce_scatter_add_rms_norm_all_gather"
                                              : "all_reduce");
    for (std::string_view kind : kinds) {
      for (int call : {0, 3}) {
        const int ranks = 2 + call % 2;
        const Fault fault = {.rank = ranks - 1, .kind = kind, .call = call};
        SCOPED_TRACE(fmt::format("{}: call {} of {} on rank {}", name, call, kind, fault.rank));
        const int threads = 1 + call % 2;
        EXPECT_EQ(step_with(name, ranks, threads, fault), kind);
      }
    }
  }
}

TEST(ScheduleFaults, WithoutAFaultStepsEndWell) {
  for (const std::string& name : strategy_names()) {
    EXPECT_EQ(step_with(name, 2, 2, {.rank = -1}), "no error") << name;
  }
}

}  // namespace
}  // namespace braid::testing_dist
