// A backend whose memory the host does not see: inputs and outputs pass through staging.
#include "braid/base/math.h"
#include "braid/runtime/executor.h"
#include "unit/runtime/serial_backend.h"
#include "unit/schedule/planned_decoder.h"

namespace braid::testing_runtime {
namespace {

using namespace testing_schedule;

// A SerialBackend that copies a step's inputs from staging before the launches, as a device does,
// and counts what passes.
class StagingBackend : public SerialBackend {
 public:
  std::vector<InputCopy> inputs;    // of the last step that was bound
  DeviceMemory* staging = nullptr;  // its
  int64_t bytes_read = 0;

  std::unique_ptr<DeviceMemory> allocate_staging(int64_t bytes) override {
    auto memory = allocate(bytes);
    staging = memory.get();
    return memory;
  }
  void read(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    bytes_read += bytes;
  }
  std::unique_ptr<Replay> bind(BoundStep step) override {
    inputs = step.inputs;
    return std::make_unique<Copying>(inputs, SerialBackend::bind(std::move(step)));
  }

 private:
  struct Copying : Replay {
    Copying(std::vector<InputCopy> c, std::unique_ptr<Replay> r)
        : copies(std::move(c)), rest(std::move(r)) {}
    void run(std::span<LaunchTime> times) override {
      for (const InputCopy& c : copies) {
        std::memcpy(c.device, c.staging, static_cast<size_t>(c.bytes));
      }
      rest->run(times);
    }
    std::vector<InputCopy> copies;
    std::unique_ptr<Replay> rest;
  };
};

constexpr Extents kCapacity = {.token = 8, .sequence = 4, .row = 3, .shard = 8};

std::unique_ptr<Executor> executor_on(Backend& backend, Memory& weights,
                                      std::shared_ptr<DeviceMemory> arena = nullptr) {
  Program program = decoder(kCapacity, {.layers = 1});
  Schedule schedule = schedule_of(program, merging(), backend.catalog(), {{kCapacity, false}});
  return std::make_unique<Executor>(std::move(program), std::move(schedule), backend,
                                    std::ref(weights), std::move(arena));
}

// A step of one token each sequence, and the logits of its rows.
std::vector<float> logits(Executor& e, const Extents& n, uint64_t seed) {
  const auto fill = [&](const char* name, auto&& value) {
    const TensorView& view = e.input(name);
    for (int64_t i = 0; i < view.shape.elems(); ++i) {
      view.as<int32_t>()[i] = static_cast<int32_t>(value(i));
    }
  };
  fill("token_ids", [&](int64_t i) { return (seed + static_cast<uint64_t>(i) * 11) % 50; });
  fill("positions", [](int64_t) { return 0; });
  fill("slots", [](int64_t i) { return i; });
  fill("q_start", [](int64_t i) { return i; });
  fill("kv_len", [](int64_t) { return 1; });
  fill("page_table", [](int64_t) { return 0; });
  fill("rows", [&](int64_t i) { return i % n.token; });
  e.run(n);
  const TensorView y = e.host_output(0, n.row);
  EXPECT_EQ(y.shape, (Shape{n.row, 50}));
  return {y.as<float>(), y.as<float>() + y.shape.elems()};
}

bool holds(DeviceMemory& memory, const std::byte* data, int64_t bytes) {
  return data >= memory.data() && data + bytes <= memory.data() + memory.bytes();
}

TEST(Staging, GivesWhatVisibleMemoryGives) {
  SerialBackend visible;
  StagingBackend hidden;
  Memory weights, others;
  const auto want = executor_on(visible, weights), got = executor_on(hidden, others);
  for (const int64_t rows : {1, 2, 3}) {
    const Extents n = {.token = 4, .sequence = 4, .row = rows};
    const auto seed = static_cast<uint64_t>(rows);
    const std::vector<float> y = logits(*got, n, seed);
    EXPECT_EQ(y, logits(*want, n, seed));
    EXPECT_NE(y, logits(*got, n, seed + 1)) << "the inputs change nothing";
  }
  EXPECT_EQ(hidden.bytes_read, 2 * (1 + 2 + 3) * 50 * 4) << "no more than the rows asked for";
}

TEST(Staging, KeepsInputsAndOutputsInBothMemories) {
  StagingBackend backend;
  Memory weights;
  const std::shared_ptr<DeviceMemory> arena = backend.allocate(1 << 20);
  const auto e = executor_on(backend, weights, arena);
  ASSERT_NE(backend.staging, nullptr);
  size_t inputs = 0;
  for (const Value& value : e->program().values) {
    if (value.kind != ValueKind::input) continue;
    SCOPED_TRACE(value.name);
    const TensorView host = e->input(value.name), device = e->device_input(value.name);
    EXPECT_EQ(host.shape, value.type.shape);
    EXPECT_TRUE(holds(*backend.staging, host.data, host.bytes()));
    EXPECT_TRUE(holds(*arena, device.data, device.bytes()));
    const auto copy = std::ranges::find(backend.inputs, device.data, &InputCopy::device);
    ASSERT_NE(copy, backend.inputs.end());
    EXPECT_EQ(copy->staging, host.data);
    EXPECT_EQ(copy->bytes, host.bytes());
    EXPECT_EQ(copy->bytes % 4, 0);
    ++inputs;
  }
  EXPECT_EQ(inputs, 7u);
  EXPECT_EQ(backend.inputs.size(), inputs);
  std::vector<InputCopy> sorted = backend.inputs;
  std::ranges::sort(sorted, {}, &InputCopy::staging);
  for (size_t i = 0; i + 1 < inputs; ++i) {
    EXPECT_LE(sorted[i].staging + sorted[i].bytes, sorted[i + 1].staging) << "they overlap";
  }
  const TensorView output = e->output(0), host = e->host_output(0, 3);
  EXPECT_TRUE(holds(*arena, output.data, output.bytes()));
  EXPECT_TRUE(holds(*backend.staging, host.data, host.bytes()));
  for (const InputCopy& input : sorted) {
    EXPECT_TRUE(host.data >= input.staging + input.bytes ||
                input.staging >= host.data + host.bytes())
        << "an input is overwritten";
  }
  EXPECT_THROW(e->device_input("no_such"), std::logic_error);
  EXPECT_THROW(e->host_output(0, 4), std::logic_error) << "of 3 rows";
}

TEST(Staging, VisibleMemoryIsItsOwn) {
  SerialBackend backend;
  Memory weights;
  const auto e = executor_on(backend, weights);
  EXPECT_EQ(e->input("token_ids").data, e->device_input("token_ids").data);
  EXPECT_EQ(e->host_output(0, 2).data, e->output(0).data);
}

// Executors that run one after the other: neither sees what the other left.
TEST(Staging, ExecutorsShareAnArena) {
  StagingBackend backend;
  Memory weights, others;
  const auto alone = executor_on(backend, others);
  const int64_t bytes = alone->schedule().memory.arena_bytes;
  const std::shared_ptr<DeviceMemory> arena = backend.allocate(bytes);
  const auto first = executor_on(backend, weights, arena);
  const auto second = executor_on(backend, weights, arena);
  EXPECT_EQ(first->output(0).data, second->output(0).data);
  EXPECT_NE(first->input("rows").data, second->input("rows").data) << "staging is its own";
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Extents n = {.token = 4, .sequence = 4, .row = 2};
    const std::vector<float> y = logits(*alone, n, seed);
    EXPECT_EQ(logits(*(seed % 2 == 0 ? first : second), n, seed), y);
    EXPECT_EQ(logits(*(seed % 2 == 0 ? second : first), n, seed), y);
  }
  const std::shared_ptr<DeviceMemory> small = backend.allocate(round_up(bytes / 2, 64));
  EXPECT_THROW(executor_on(backend, weights, small), std::logic_error);
}

}  // namespace
}  // namespace braid::testing_runtime
