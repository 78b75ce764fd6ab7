#include "braid/engine/diffusion/network.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "braid/io/quoted.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

fabric::LinkModel links_of(const NetworkConfig& config) {
  fabric::LinkModel links = config.links;
  const Topology topology = config.mesh ? config.mesh->topology : Topology{};
  links.machines = topology.machines;
  links.racks = topology.racks;
  links.validate(config.ranks());
  return links;
}

// Where each rank's elements of a value are: every frame is divided alike, and a rank's shares of
// all frames stand together.
struct Shares {
  Shares(std::span<const int64_t> sizes, bool divided, int64_t frames)
      : frames(divided ? frames : 1) {
    for (const int64_t size : sizes) {
      begin.push_back(divided ? elems / frames : 0);
      of_frame.push_back(size / this->frames);
      elems = divided ? elems + size : size;
    }
  }

  // visit(first in the rank's part, first in the value, how many).
  template <class F>
  void each_frame(size_t rank, F&& visit) const {
    const int64_t n = of_frame[rank];
    for (int64_t t = 0; t < frames; ++t) visit(t * n, t * (elems / frames) + begin[rank], n);
  }

  int64_t frames;
  int64_t elems = 0;                     // of the value
  std::vector<int64_t> begin, of_frame;  // [ranks], elements of a frame
};

std::unique_ptr<World> make_world(WeightOf weight, const NetworkConfig& config) {
  WorldConfig world{.ranks = config.ranks(),
                    .threads = config.threads,
                    .links = links_of(config),
                    .deadline_ms = config.deadline_ms};
  if (config.mesh) world.sequence.push_back(config.mesh->mesh);
  for (const SequenceMesh& mesh : config.further) world.sequence.push_back(mesh.mesh);
  if (!config.device.cuda) return make_cpu_world(std::move(weight), world);
  return make_cuda_world({std::move(weight), config.random}, world, config.device);
}

}  // namespace

NetworkRanks::NetworkRanks(WeightOf weight, const NetworkConfig& config)
    : world(make_world(std::move(weight), config)),
      threads(config.ranks(), config.ranks() * config.threads) {}

void NetworkRanks::run(std::span<const std::unique_ptr<Executor>> executors,
                       std::span<LaunchTime> times) {
  const Extents all = executors[0]->program().capacity;
  if (executors.size() == 1) return executors[0]->run({&all, 1}, times);
  BRAID_CHECK(std::ssize(executors) == threads.threads(), "{} of {} ranks", executors.size(),
              threads.threads());
  world->fabric().rethrow_error();
  try {
    threads.run([&](const cpu::Team& team) {
      try {
        Executor& executor = *executors[team.index];
        if (world->waits_on_device()) {
          executor.prepare({&all, 1});
          team.barrier();
        }
        executor.run({&all, 1}, team.index == 0 ? times : std::span<LaunchTime>());
      } catch (...) {
        world->fabric().abort(team.index, std::current_exception());
        throw;
      }
    });
  } catch (...) {
    world->fabric().rethrow_error();  // the cause, not a rank's later view
    throw;
  }
}

void NetworkRanks::each(std::span<const std::unique_ptr<Executor>> executors, size_t bytes,
                        const std::function<void(size_t rank)>& move) {
  constexpr size_t kFewBytes = 64 << 10;  // less is moved before other threads wake up
  if (bytes > kFewBytes && std::ssize(executors) == threads.threads()) {
    threads.run([&](const cpu::Team& team) { move(static_cast<size_t>(team.index)); });
    return;
  }
  for (size_t r = 0; r < executors.size(); ++r) move(r);
}

BoundNetwork::BoundNetwork(NetworkRanks& ranks, const std::vector<RankProgram>& lowered,
                           std::vector<std::unique_ptr<Executor>> executors)
    : ranks_(ranks), executors_(std::move(executors)) {
  const RankProgram& first = lowered.at(0);
  for (size_t i = 0; i < first.program.values.size(); ++i) {
    const Value& value = first.program.values[i];
    if (value.kind == ValueKind::input) inputs_[value.name] = first.placements[i];
  }
  for (ValueId id : first.program.outputs) {
    outputs_.push_back(first.placements[id]);
  }
}

void BoundNetwork::write_parts(
    std::string_view input, DType dtype, int64_t elems, int64_t frames,
    const std::function<void(std::byte* to, int64_t from, int64_t n)>& write) {
  const auto at = inputs_.find(input);
  BRAID_CHECK(at != inputs_.end(), "no input '{}'", input);
  std::vector<int64_t> sizes;
  for (const auto& executor : executors_) {
    const TensorView& to = executor->input(input);
    BRAID_CHECK(to.dtype == dtype, "input '{}' is {}", input, braid::name(to.dtype));
    sizes.push_back(to.shape.elems());
  }
  const Shares shares(sizes, at->second.is_shard(), frames);
  BRAID_CHECK(shares.elems == elems, "input '{}' has {} elements, not {}", input, shares.elems,
              elems);
  ranks_.each(executors_, static_cast<size_t>(bytes_of(dtype, elems)), [&](size_t r) {
    const TensorView& to = executors_[r]->input(input);
    shares.each_frame(r, [&](int64_t own, int64_t whole, int64_t n) {
      write(to.data + bytes_of(dtype, own), whole, n);
    });
  });
}

void BoundNetwork::write(std::string_view input, std::span<const float> values, int64_t frames) {
  const DType dtype = executors_[0]->input(input).dtype;
  write_parts(input, dtype, std::ssize(values), frames,
              [&](std::byte* to, int64_t from, int64_t n) {
                quantize_row(dtype, values.data() + from, to, n);
              });
}

void BoundNetwork::write(std::string_view input, std::span<const int32_t> values) {
  write_parts(input, DType::i32, std::ssize(values), 1,
              [&](std::byte* to, int64_t from, int64_t n) {
                std::memcpy(to, values.data() + from, static_cast<size_t>(n) * sizeof(int32_t));
              });
}

void BoundNetwork::run() {
  ranks_.run(executors_, {});
}

std::vector<LaunchTime> BoundNetwork::run_timed() {
  std::vector<LaunchTime> times(executors_[0]->schedule().launches.size());
  ranks_.run(executors_, times);
  return times;
}

double BoundNetwork::predicted_seconds(const CostModel& cost) const {
  Plan plan;
  for (const auto& executor : executors_) {
    plan.programs.push_back(executor->program());
    plan.schedules.push_back(executor->schedule());
  }
  return network_seconds(plan, cost);
}

std::span<const float> BoundNetwork::output(size_t index, int64_t frames) {
  const bool divided = outputs_.at(index).is_shard();
  std::vector<int64_t> sizes;
  for (size_t r = 0; r < (divided ? executors_.size() : 1); ++r) {
    sizes.push_back(executors_[r]->output(index).shape.elems());
  }
  const Shares shares(sizes, divided, frames);
  const auto elems = static_cast<size_t>(shares.elems);
  if (!divided && executors_[0]->output(index).dtype == DType::f32) {
    return {host_output(0, index).as<const float>(), elems};
  }
  gathered_.resize(elems);
  ranks_.each(std::span(executors_).first(sizes.size()), elems * sizeof(float), [&](size_t r) {
    const TensorView view = host_output(r, index);
    shares.each_frame(r, [&](int64_t own, int64_t whole, int64_t n) {
      dequantize_row(view.dtype, view.data + bytes_of(view.dtype, own), gathered_.data() + whole,
                     n);
    });
  });
  return gathered_;
}

TensorView BoundNetwork::host_output(size_t rank, size_t index) {
  Executor& executor = *executors_[rank];
  return executor.host_output(index, executor.output(index).shape[0]);
}

Network::Network(std::string name, const WeightSource& weights, const NetworkConfig& config)
    : name_(std::move(name)),
      weights_(weights),
      device_(config.device),
      dtype_(config.dtype),
      ranks_(std::make_unique<NetworkRanks>(
          [&weights](std::string_view weight) { return weights.get(weight); }, config)),
      mesh_(config.mesh),
      schedule_(config.schedule),
      text_(config.text) {}

WeightDtype Network::dtype_of() const {
  return [&weights = weights_, cuda = device_.cuda, dtype = dtype_](std::string_view weight) {
    const DType file = weights.type(weight).dtype;
    return cuda && is_float(file) ? dtype : file;
  };
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

BoundNetwork& Network::plan(const std::string& key, const std::function<Program()>& make,
                            const std::function<LayoutPlan(const Program&)>& divide) {
  return plans_.get(key, [&] {
    ++plans_made_;
    const Program program = make();
    return bind(program, divide ? divide(program) : LayoutPlan{});
  });
}

void Network::divide_by(const SequenceMesh& mesh, const std::string& schedule, TextRows text) {
  plans_.clear();
  mesh_ = mesh;
  schedule_ = schedule;
  text_ = text;
}

PlannedForward Network::planned(const Program& program, const LayoutPlan& layout) const {
  const bool alone = layout.P == 1;
  return plan_network(program, layout, ranks_->world->catalogs(layout.P),
                      alone ? Topology{} : mesh_.value().topology,
                      *find_strategy(alone ? "sequential" : schedule_));
}

BoundNetwork Network::bind(const Program& program, const LayoutPlan& layout) {
  PlannedForward made = planned(program, layout);
  const std::vector<RankProgram> places = made.lowered;
  return {*ranks_, places, ranks_->world->bind(std::move(made))};
}

int64_t Network::value_bytes(const Program& program, const LayoutPlan& layout) const {
  // An arena has the same size on all ranks.
  return planned(program, layout).schedules[0].memory.arena_bytes * (device_.cuda ? 1 : layout.P);
}

int64_t Network::weight_bytes() const {
  int64_t bytes = 0;
  for (const std::string_view tensor : weights_.names()) {
    const TensorType type = weights_.type(tensor);
    const bool converted = device_.cuda && is_float(type.dtype);
    bytes += converted ? bytes_of(dtype_, type.shape.elems()) : type.bytes();
  }
  return bytes;
}

}  // namespace braid
