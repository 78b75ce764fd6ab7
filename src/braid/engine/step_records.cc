#include "braid/engine/step_records.h"

#include <filesystem>
#include <fstream>

#include "braid/base/fnv.h"
#include "braid/job/packing.h"

namespace braid {
namespace {

using job::Packer;
using job::Unpacker;

enum class Record : int64_t { runner, step, end };

Packer& add(Packer& packer, const std::optional<int>& value) {
  return packer.add(value ? int64_t{*value} : int64_t{-1});
}

std::optional<int> optional_number(Unpacker& fields) {
  const int64_t value = fields.number();
  if (value < 0) return {};
  return static_cast<int>(value);
}

RunnerConfig read_runner(Unpacker& fields) {
  RunnerConfig config;
  config.tp = static_cast<int>(fields.number());
  config.ep = static_cast<int>(fields.number());
  config.threads = static_cast<int>(fields.number());
  if (fields.number() != 0) {
    SequenceParallel& sp = config.sp.emplace();
    if (const auto mode = optional_number(fields)) sp.mode = static_cast<SpMode>(*mode);
    sp.degrees.torus = optional_number(fields);
    sp.degrees.ulysses = optional_number(fields);
    sp.degrees.ring = optional_number(fields);
  }
  config.cache.pages = fields.number();
  config.cache.page_size = fields.number();
  config.cache.pages_per_sequence = fields.number();
  config.cache.kv_dtype = static_cast<DType>(fields.number());
  config.schedule = fields.text();
  config.links.machines = static_cast<int>(fields.number());
  if (const std::string profile = fields.text(); !profile.empty()) {
    config.profile = parse_profile(profile, "the profile of rank 0");
  }
  config.deadline_ms = fields.number();
  config.communication = fields.number() != 0;
  return config;
}

void read_step(Unpacker& fields, Batch& batch) {
  batch.clear();
  std::vector<int32_t> tokens, pages;
  for (int64_t left = fields.number(); left > 0; --left) {
    fields.numbers(tokens);
    fields.numbers(pages);
    const int64_t cached = fields.number(), scored = fields.number();
    batch.add(tokens, cached, pages, scored);
  }
}

// A file's size and first MiB, or a folder's tensors: no weight is read.
std::string identity(const Model& model) {
  if (model.random()) return fmt::format("random weights, {} parameters", model.parameters());
  const std::string& path = model.source().path();
  Fnv hash;
  int64_t bytes = 0;
  for (const TensorInfo& tensor : model.source().tensors()) {
    hash.add(tensor.name);
    hash.add(tensor.type);
    for (int64_t n : tensor.shape) hash.add(n);
    bytes += tensor.bytes;
  }
  std::error_code none;
  if (std::filesystem::is_regular_file(path, none)) {
    bytes = static_cast<int64_t>(std::filesystem::file_size(path, none));
    std::ifstream file(path, std::ios::binary);
    std::string head(size_t{1} << 20, '\0');
    file.read(head.data(), std::ssize(head));
    head.resize(static_cast<size_t>(file.gcount()));
    hash.add(head);
  }
  return fmt::format("{} bytes, header {:016x}", bytes, hash.value());
}

}  // namespace

std::string runner_record(const RunnerConfig& c) {
  Packer packer;
  packer.add(static_cast<int64_t>(Record::runner)).add(int64_t{c.tp}).add(int64_t{c.ep});
  packer.add(int64_t{c.threads}).add(int64_t{c.sp.has_value()});
  if (c.sp) {
    const auto& mode = c.sp->mode;
    add(packer, mode ? std::optional(static_cast<int>(*mode)) : std::nullopt);
    add(packer, c.sp->degrees.torus);
    add(packer, c.sp->degrees.ulysses);
    add(packer, c.sp->degrees.ring);
  }
  packer.add(c.cache.pages).add(c.cache.page_size).add(c.cache.pages_per_sequence);
  packer.add(static_cast<int64_t>(c.cache.kv_dtype)).add(c.schedule).add(int64_t{c.links.machines});
  packer.add(c.profile ? to_json(*c.profile) : std::string()).add(c.deadline_ms);
  return packer.add(int64_t{c.communication}).bytes();
}

std::string step_record(const Batch& batch) {
  Packer packer;
  packer.add(static_cast<int64_t>(Record::step)).add(std::ssize(batch.sequences()));
  int64_t begin = 0;
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const SequenceInfo& sequence = batch.sequences()[s];
    packer.add(
        batch.tokens().subspan(static_cast<size_t>(begin), static_cast<size_t>(sequence.tokens)));
    packer.add(batch.pages_of(s)).add(sequence.cached).add(sequence.scored);
    begin += sequence.tokens;
  }
  return packer.bytes();
}

std::string end_record() {
  return Packer().add(static_cast<int64_t>(Record::end)).bytes();
}

bool follow(job::Job* job, const Model& model) {
  if (job == nullptr) return false;
  job->agree("models", identity(model));
  if (job->process() == 0) return false;
  std::unique_ptr<Runner> runner;
  std::optional<Batch> batch;
  while (true) {
    Unpacker fields(job->next_record());
    switch (static_cast<Record>(fields.number())) {
      case Record::runner: {
        RunnerConfig config = read_runner(fields);
        config.job = job;
        runner.reset();
        batch.emplace(config.cache.page_size);
        runner = std::make_unique<Runner>(model, config);
        break;
      }
      case Record::step:
        BRAID_CHECK(runner != nullptr, "a step before its runner");
        read_step(fields, *batch);
        runner->step(*batch);
        break;
      case Record::end:
        return true;
    }
  }
}

void end_followers(job::Job& job) {
  if (job.process() == 0) job.send_record(end_record());
}

}  // namespace braid
