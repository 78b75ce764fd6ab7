#pragma once

#include <string>

#include "braid/engine/batch.h"
#include "braid/engine/runner.h"
#include "braid/job/job.h"

// What process 0 of a job tells the others: the runners that it makes and the steps that it takes,
// as records in order. The others make the same runners and take the same steps.
namespace braid {

std::string runner_record(const RunnerConfig& config);
std::string step_record(const Batch& batch);
std::string end_record();

// The life of a process of a job from the moment its model is loaded. All processes compare their
// models; fails with kInvalidArgument, naming two hosts and what each has, where they differ. At
// process 0, and without a job (null), that is all, and false is returned. Every other process
// computes what process 0 says until it ends the job; then true is returned.
bool follow(job::Job* job, const Model& model);

// Process 0 is at its end: lets the others return from follow().
void end_followers(job::Job& job);

}  // namespace braid
