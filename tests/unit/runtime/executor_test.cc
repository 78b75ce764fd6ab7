#include "braid/runtime/executor.h"

#include <random>

#include "unit/runtime/serial_backend.h"
#include "unit/schedule/planned_decoder.h"

namespace braid::testing_runtime {
namespace {

using namespace testing_schedule;

constexpr int kMicroBatches = 3;

struct Bound {
  explicit Bound(const OpScheduler& strategy) {
    std::vector<MicroBatch> parts;
    Extents capacity;
    for (int64_t tokens : {4, 16, 8}) {
      parts.push_back({{.token = tokens, .sequence = 4, .row = 2, .shard = tokens}, false});
      capacity += parts.back().capacity;
    }
    program = decoder(capacity, {.layers = 1});
    schedule = schedule_of(program, strategy, backend.catalog(), parts);
    executor.emplace(program, schedule, backend, std::ref(memory));
  }

  // One token each sequence, so that any counts will do.
  void write(std::span<const Extents> counts) {
    const auto fill = [&](const char* name, auto&& value) {
      const TensorView& view = executor->input(name);
      for (int64_t i = 0; i < view.shape.elems(); ++i) view.as<int32_t>()[i] = value(i);
    };
    fill("token_ids", [](int64_t i) { return static_cast<int32_t>(i * 7 % 50); });
    fill("positions", [](int64_t) { return 0; });
    fill("slots", [](int64_t i) { return static_cast<int32_t>(i); });
    fill("q_start", [](int64_t i) { return static_cast<int32_t>(i); });
    fill("kv_len", [](int64_t) { return 1; });
    fill("page_table", [](int64_t) { return 0; });
    int64_t first = 0;
    std::vector<int32_t> rows;
    for (const Extents& n : counts) {
      for (int64_t r = 0; r < n.row; ++r) rows.push_back(static_cast<int32_t>(first + r % n.token));
      first += n.token;
    }
    std::ranges::copy(rows, executor->input("rows").as<int32_t>());
  }

  SerialBackend backend;
  Memory memory;
  Program program;
  Schedule schedule;
  std::optional<Executor> executor;
};

std::vector<Extents> random_counts(const Schedule& schedule, std::mt19937_64& rng) {
  std::vector<Extents> counts;
  for (const MicroBatch& mb : schedule.micro_batches) {
    const auto some = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(rng() % static_cast<uint64_t>(most - least + 1));
    };
    Extents n;
    n.token = n.shard = some(1, mb.capacity.token);
    n.sequence = some(1, std::min(mb.capacity.sequence, n.token));
    n.row = some(0, mb.capacity.row);
    counts.push_back(n);
  }
  return counts;
}

// Kernels that compute whole capacities compute their launch's, not the batch's; the starts of
// sequences are one more than there are sequences.
TEST(Executor, OperandsHaveRoomForTheirMicroBatches) {
  Bound b(merging());
  int parts = 0, wholes = 0;
  b.backend.watch = [&](int i, const OpCall& call) {
    const Launch& l = b.schedule.launches[static_cast<size_t>(i)];
    ++(l.num_micro_batches == 1 ? parts : wholes);
    Extents n;
    for (int mb = l.micro_batch; mb < l.micro_batch_end(); ++mb) {
      n += b.schedule.micro_batches[static_cast<size_t>(mb)].capacity;
    }
    const auto check = [&](std::span<const TensorView> views, const std::vector<ValueId>& ids) {
      for (size_t k = 0; k < ids.size(); ++k) {
        if (ids[k] == kNoValue) continue;
        const Value& value = b.program.value(ids[k]);
        const int64_t more = value.name == "q_start" ? 1 : 0;
        const int64_t rows = value.type.shape[0] - more;
        EXPECT_EQ(views[k].shape[0], n.of(value.type.axis, rows) + more) << value.name;
      }
    };
    check(call.in, call.op->inputs);
    check(call.out, call.op->outputs);
  };
  std::vector<Extents> counts;
  for (const MicroBatch& mb : b.schedule.micro_batches) counts.push_back(mb.capacity);
  b.write(counts);
  b.executor->run(counts);
  EXPECT_GT(parts, 0);
  EXPECT_GT(wholes, 0);
}

// What meets is one buffer: the micro-batches' rows of a merged value follow each other without
// gaps at the step's sizes, and the merged launch works on them all where they lie.
TEST(Executor, RowsOfMicroBatchesMeetWithoutGaps) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  Bound b(merging());
  int merged_values = 0;
  for (int round = 0; round < 20; ++round) {
    const std::vector<Extents> counts = random_counts(b.schedule, rng);
    std::vector<Extents> begin(kMicroBatches + 1);
    for (size_t i = 0; i < counts.size(); ++i) {
      begin[i + 1] = begin[i];
      begin[i + 1] += counts[i];
    }
    std::map<ValueId, std::byte*> base;  // of merged values
    b.backend.watch = [&](int i, const OpCall& call) {
      const Launch& l = b.schedule.launches[static_cast<size_t>(i)];
      const auto first = static_cast<size_t>(l.micro_batch);
      Extents n;
      for (size_t mb = first; mb < static_cast<size_t>(l.micro_batch_end()); ++mb) n += counts[mb];
      EXPECT_EQ(call.part->begin, begin[first]);
      EXPECT_EQ(call.extents(), n);
      const auto check = [&](std::span<const TensorView> views, const std::vector<ValueId>& ids) {
        for (size_t k = 0; k < ids.size(); ++k) {
          const Value& value = b.program.value(ids[k] == kNoValue ? 0 : ids[k]);
          const bool memory = value.kind == ValueKind::computed || value.kind == ValueKind::input;
          if (ids[k] == kNoValue || !memory) continue;
          const bool merged = b.schedule.memory.merged[static_cast<size_t>(ids[k])];
          if (!merged) {
            EXPECT_EQ(l.num_micro_batches, 1);
            continue;
          }
          ++merged_values;
          const int64_t row = views[k].bytes() / views[k].shape[0];
          std::byte* whole = views[k].data - begin[first].of(value.type.axis, 0) * row;
          const auto [at, fresh] = base.try_emplace(ids[k], whole);
          EXPECT_EQ(at->second, whole) << value.name << " of launch " << i;
        }
      };
      check(call.in, call.op->inputs);
      check(call.out, call.op->outputs);
    };
    b.write(counts);
    b.executor->run(counts);
    EXPECT_EQ(base.at(b.program.outputs[0]), b.executor->output(0).data);
    for (const char* name : {"token_ids", "rows", "q_start"}) {
      EXPECT_EQ(base.at(*b.program.find(name)), b.executor->input(name).data);
    }
  }
  EXPECT_GT(merged_values, 0);
}

TEST(Executor, RefusesMoreThanTheCapacity) {
  Bound b(merging());
  std::vector<Extents> good;
  for (const MicroBatch& mb : b.schedule.micro_batches) good.push_back(mb.capacity);
  b.backend.watch = [](int, const OpCall&) { FAIL() << "ran"; };
  for (size_t i = 0; i < good.size(); ++i) {
    for (int64_t Extents::*field :
         {&Extents::token, &Extents::sequence, &Extents::row, &Extents::shard}) {
      std::vector<Extents> counts = good;
      counts[i].*field += 1;
      EXPECT_THROW(b.executor->run(counts), std::logic_error);
    }
  }
  EXPECT_THROW(b.executor->run(std::span(good).first(2)), std::logic_error);
  EXPECT_THROW(b.executor->input("no_such"), std::logic_error);
  EXPECT_THROW(b.executor->output(1), std::out_of_range);
}

}  // namespace
}  // namespace braid::testing_runtime
