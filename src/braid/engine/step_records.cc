#include "braid/engine/step_records.h"

#include <bit>

#include "braid/engine/describe_cluster.h"
#include "braid/engine/job_layout.h"
#include "braid/job/packing.h"

namespace braid {
namespace {

using job::Packer;
using job::Unpacker;

enum class Record : int64_t { devices, runner, step, loop, loop_step, loop_end, end };

Packer& add_device(Packer& packer, const DeviceSpec& device) {
  return packer.add(int64_t{device.cuda}).add(std::span<const int32_t>(device.ids));
}

DeviceSpec read_device(Unpacker& fields) {
  DeviceSpec device{.cuda = fields.number() != 0, .ids = {}};
  std::vector<int32_t> ids;
  fields.numbers(ids);
  device.ids.assign(ids.begin(), ids.end());
  return device;
}

RunnerConfig read_runner(Unpacker& fields) {
  RunnerConfig config = runner_of(parse_cluster(fields.text(), "the runner of rank 0"));
  config.deadline_ms = fields.number();
  config.decode = fields.text();
  config.device = read_device(fields);
  if (fields.number() != 0) config.on_step = [](const Runner&) {};  // process 0 wants the times
  config.count_experts = fields.number() != 0;
  return config;
}

void read_step(Unpacker& fields, Batch& batch) {
  batch.clear();
  batch.set_exact(fields.number() != 0);
  std::vector<int32_t> tokens, pages;
  for (int64_t left = fields.number(); left > 0; --left) {
    fields.numbers(tokens);
    fields.numbers(pages);
    const int64_t cached = fields.number(), scored = fields.number();
    batch.add(tokens, cached, pages, scored, static_cast<int>(fields.number()));
  }
}

void add(Packer& packer, float value) {
  packer.add(int64_t{std::bit_cast<int32_t>(value)});
}

float read_float(Unpacker& fields) {
  return std::bit_cast<float>(static_cast<int32_t>(fields.number()));
}

void add(Packer& packer, const SamplingParams& p) {
  for (float value : {p.temperature, p.top_p, p.min_p, p.repetition_penalty, p.frequency_penalty,
                      p.presence_penalty}) {
    add(packer, value);
  }
  packer.add(int64_t{p.top_k}).add(std::bit_cast<int64_t>(p.seed)).add(int64_t{p.logprobs});
  packer.add(std::ssize(p.logit_bias));
  for (const auto& [id, bias] : p.logit_bias) {
    packer.add(int64_t{id});
    add(packer, bias);
  }
}

SamplingParams read_sampling(Unpacker& fields) {
  SamplingParams p;
  for (float* value : {&p.temperature, &p.top_p, &p.min_p, &p.repetition_penalty,
                       &p.frequency_penalty, &p.presence_penalty}) {
    *value = read_float(fields);
  }
  p.top_k = static_cast<int32_t>(fields.number());
  p.seed = std::bit_cast<uint64_t>(fields.number());
  p.logprobs = static_cast<int>(fields.number());
  for (int64_t left = fields.number(); left > 0; --left) {
    const auto id = static_cast<int32_t>(fields.number());
    p.logit_bias.emplace_back(id, read_float(fields));
  }
  return p;
}

// Process 0's loop, as another process follows it.
class FollowedLoop {
 public:
  FollowedLoop(Unpacker& fields, Runner& runner) {
    LoopRequest request{.limit = fields.number(),
                        .mask_deadline_ms = static_cast<int>(fields.number())};
    sequences_.resize(fields.number());
    for (Sequence& s : sequences_) {
      fields.numbers(s.prompt);
      request.sequences.push_back(
          {.prompt = s.prompt, .sampling = read_sampling(fields), .hold = [&s](int64_t) {
             return std::span<const int32_t>(s.pages);
           }});
    }
    read_pages(fields);
    loop_ = runner.loop(std::move(request));
  }
  void step(Unpacker& fields) {
    read_pages(fields);
    if (loop_) loop_->next();  // null: no rank of this process takes part
  }

 private:
  struct Sequence {
    std::vector<int32_t> prompt, pages;
  };
  void read_pages(Unpacker& fields) {
    std::vector<int32_t> fresh;
    for (Sequence& s : sequences_) {
      fields.numbers(fresh);
      s.pages.insert(s.pages.end(), fresh.begin(), fresh.end());
    }
  }

  std::vector<Sequence> sequences_;
  std::unique_ptr<TokenLoop> loop_;
};

void add(Packer& packer, const std::vector<std::vector<int32_t>>& pages) {
  for (const std::vector<int32_t>& fresh : pages) packer.add(std::span<const int32_t>(fresh));
}

}  // namespace

std::string devices_record(const DeviceSpec& device) {
  Packer packer;
  packer.add(static_cast<int64_t>(Record::devices));
  return add_device(packer, device).bytes();
}

std::string runner_record(const RunnerConfig& c) {
  Packer packer;
  packer.add(static_cast<int64_t>(Record::runner))
      .add(to_json(described(c, RankDescription{.units = c.threads})))
      .add(c.deadline_ms)
      .add(c.decode);
  return add_device(packer, c.device)
      .add(int64_t{c.on_step != nullptr})
      .add(int64_t{c.count_experts})
      .bytes();
}

std::string step_record(const Batch& batch) {
  Packer packer;
  packer.add(static_cast<int64_t>(Record::step)).add(int64_t{batch.exact()});
  packer.add(std::ssize(batch.sequences()));
  int64_t begin = 0;
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const SequenceInfo& sequence = batch.sequences()[s];
    packer.add(batch.tokens().subspan(begin, sequence.tokens));
    packer.add(batch.pages_of(s)).add(sequence.cached).add(sequence.scored);
    packer.add(int64_t{batch.group_of(s)});
    begin += sequence.tokens;
  }
  return packer.bytes();
}

std::string loop_record(const LoopRequest& request,
                        const std::vector<std::vector<int32_t>>& pages) {
  Packer packer;
  packer.add(static_cast<int64_t>(Record::loop)).add(request.limit);
  packer.add(int64_t{request.mask_deadline_ms}).add(std::ssize(request.sequences));
  for (const LoopSequence& sequence : request.sequences) {
    packer.add(sequence.prompt);
    add(packer, sequence.sampling);
  }
  add(packer, pages);
  return packer.bytes();
}

std::string loop_step_record(const std::vector<std::vector<int32_t>>& pages) {
  Packer packer;
  packer.add(static_cast<int64_t>(Record::loop_step));
  add(packer, pages);
  return packer.bytes();
}

std::string loop_end_record() {
  return Packer().add(static_cast<int64_t>(Record::loop_end)).bytes();
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
  std::optional<FollowedLoop> loop;
  while (true) {
    Unpacker fields(job->next_record());
    switch (static_cast<Record>(fields.number())) {
      case Record::devices:
        start_gpu(*job, read_device(fields));
        break;
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
      case Record::loop:
        BRAID_CHECK(runner != nullptr, "a loop before its runner");
        loop.emplace(fields, *runner);
        break;
      case Record::loop_step:
        BRAID_CHECK(loop, "a step of no loop");
        loop->step(fields);
        break;
      case Record::loop_end:
        loop.reset();
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
