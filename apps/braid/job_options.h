#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "braid/job/job.h"

namespace braid::app {

// How a command finds its place among several processes.
struct JobOptions {
  std::string job = "auto";
  double timeout = 10;  // seconds
  std::string log_dir;
};

// --job, --job-timeout, --log-dir.
void add_job(CLI::App& command, JobOptions& options);

// --job alone, for commands in a single process.
void add_job_source(CLI::App& command, JobOptions& options);

// An error already reported; the program exits with its status.
struct JobEnded {
  int status = 1;
};

// Runs body(job) in the job for which a launcher started this process; null without a job. All
// processes first compare builds and command lines. Process 0 alone has the terminal: other
// processes print to their file in --log-dir, or nowhere. Any error of any process ends all; each
// prints a line with rank and host (wrong usage: process 0 alone) and throws JobEnded.
void run_in_job(const JobOptions& options, const std::function<void(job::Job* job)>& body);

// For commands in a single process. Fails with kInvalidArgument in a job with several.
void require_one_process(const JobOptions& options, std::string_view command);

// False in a process that a launcher numbers other than first: wrong usage is reported once.
bool is_first_process();

}  // namespace braid::app
