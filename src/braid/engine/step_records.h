#pragma once

#include <string>

#include "braid/engine/batch.h"
#include "braid/engine/runner.h"
#include "braid/engine/token_loop.h"
#include "braid/job/job.h"

// Records from process 0 of a job to the others: the runners it makes, the steps it takes, and the
// loops on devices with their steps, in order. The others do the same.
namespace braid {

// The devices of a runner to come: the others start their GPUs while process 0 starts its own.
std::string devices_record(const DeviceSpec& device);
std::string runner_record(const RunnerConfig& config);
std::string step_record(const Batch& batch);
// Records for a loop behind the last step, for each loop step, and for the end. `pages` [S]: each
// sequence's new pages since the record before.
std::string loop_record(const LoopRequest& request, const std::vector<std::vector<int32_t>>& pages);
std::string loop_step_record(const std::vector<std::vector<int32_t>>& pages);
std::string loop_end_record();
std::string end_record();

// The life of a job's process after its model is loaded. All processes compare their models; on a
// difference fails with kInvalidArgument, naming two hosts and both values. At process 0, and
// without a job (null), follow() then returns false. Every other process computes process 0's steps
// until the job's end; then true is returned.
bool follow(job::Job* job, const Model& model);

// Process 0 is at its end: lets the others return from follow().
void end_followers(job::Job& job);

}  // namespace braid
