#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/queues.h"
#include "braid/backend/cpu/cpu_backend.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/kv/kv_pages.h"
#include "braid/engine/runner.h"
#include "braid/engine/world.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"

// Forward passes of the golden models, for tests that link the engine.
namespace braid::golden {

constexpr int64_t kPageSize = 16;
constexpr int64_t kPages = 64;

// A folder of this test's own, gone with the object.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("braid_golden_{}_{}", name, getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A GPU for each rank; where there are fewer, ranks divide the SMs of one.
inline DeviceSpec gpus_for(int ranks) {
  DeviceSpec device{.cuda = true, .ids = {}};
  for (int r = 0; r < ranks; ++r) device.ids.push_back(r % std::max(1, usable_gpus()));
  return device;
}

// Why so many ranks cannot run on GPUs here, or null.
inline const char* cannot_run(int ranks) {
  if (usable_gpus() == 0) return "no GPU";
  if (ranks <= usable_gpus() || testing_cuda::ranks_may_share()) return nullptr;
  return "ranks that share a GPU would wait for each other in its only queue";
}

// Ranks of the tests' size on GPUs.
inline RunnerConfig cuda_runner(int tp = 1) {
  return {.device = gpus_for(tp),
          .tp = tp,
          .cache = {.pages = kPages,
                    .page_size = kPageSize,
                    .pages_per_sequence = kPages,
                    .kv_dtype = DType::bf16,
                    .activations = DType::bf16}};
}

using Rows = std::vector<std::vector<float>>;

inline void append_rows(const TensorView& logits, Rows& rows) {
  for (int64_t r = 0; r < logits.shape[0]; ++r) {
    rows.emplace_back(logits.row_as<float>(r), logits.row_as<float>(r) + logits.cols());
  }
}

// A prompt's logits at all positions, in steps of at most `chunk` tokens.
inline Rows prompt_logits(Runner& runner, const std::vector<int32_t>& prompt, size_t chunk) {
  Rows rows;
  std::vector<int32_t> pages;
  KvPages pool(kPages, kPageSize);
  for (size_t done = 0; done < prompt.size(); done += chunk) {
    const size_t n = std::min(chunk, prompt.size() - done);
    pool.reserve(pages, static_cast<int64_t>(done + n));
    Batch batch(kPageSize);
    batch.add(std::span(prompt).subspan(done, n), static_cast<int64_t>(done), pages,
              static_cast<int64_t>(n));
    append_rows(runner.run(batch), rows);
  }
  return rows;
}

// The logits of all positions, computed by the ops' scalar references alone. `program` has the
// prompt's capacity; `more` writes inputs that a batch has not.
inline Rows reference_logits(
    const Model& model, const Program& program, const std::vector<int32_t>& prompt,
    const std::function<void(const Executor&, std::span<const int32_t> pages)>& more = {}) {
  const auto n = std::ssize(prompt);
  cpu::ThreadPool pool(1);
  cpu::KernelTable table(1);
  for (const Op& op : program.ops) cpu::add_reference_kernel(table, *op.def);
  cpu::CpuBackend backend(table, pool);
  std::map<std::string, std::unique_ptr<DeviceMemory>> states;
  Plan plan{{program}, {}};
  plan_schedules(plan, *sequential_strategy(),
                 {.catalogs = {&table}, .micro_batches = {{program.capacity}}});
  Executor executor(program, plan.schedules[0], backend, [&](const Value& value) {
    if (value.kind == ValueKind::weight) return model.weight(value.name);
    auto& memory = states[value.name];
    if (!memory) memory = backend.allocate(bytes_of(value.type));
    return make_view(memory->data(), value.type.dtype, value.type.shape);
  });
  std::vector<int32_t> pages;
  KvPages(kPages, kPageSize).reserve(pages, n);
  Batch batch(kPageSize);
  batch.add(prompt, 0, pages, n);
  BatchCut cut;
  cut.assign(batch, {{0, n}}, "sequential");
  cut.write(executor);
  if (more) more(executor, pages);
  executor.run(batch.extents());
  Rows rows;
  append_rows(executor.host_output(0, n), rows);
  return rows;
}

}  // namespace braid::golden
