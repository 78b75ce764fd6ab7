#include "braid/engine/step_records.h"

#include "braid/engine/describe_cluster.h"
#include "braid/job/packing.h"

namespace braid {
namespace {

using job::Packer;
using job::Unpacker;

enum class Record : int64_t { runner, step, end };

RunnerConfig read_runner(Unpacker& fields) {
  RunnerConfig config = runner_of(parse_cluster(fields.text(), "the runner of rank 0"));
  config.deadline_ms = fields.number();
  if (fields.number() != 0) config.on_step = [](const Runner&) {};  // process 0 wants the times
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

}  // namespace

std::string runner_record(const RunnerConfig& c) {
  return Packer()
      .add(static_cast<int64_t>(Record::runner))
      .add(to_json(described(c, RankDescription{.units = c.threads})))
      .add(c.deadline_ms)
      .add(int64_t{c.on_step != nullptr})
      .bytes();
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
