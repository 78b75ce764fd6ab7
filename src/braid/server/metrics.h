#pragma once

#include <memory>
#include <string>

#include "braid/engine/requests/request_loop.h"

namespace braid::server {

// Counters and histograms for Prometheus. Names and buckets are vLLM's behind a prefix, so that
// dashboards made for vLLM fit. Any thread.
class Metrics {
 public:
  // `prefix` without its colon: "braid" gives braid:num_requests_running. `limits` are told as
  // labels.
  Metrics(const std::string& prefix, const std::string& model, const SchedulerConfig& limits);
  ~Metrics();

  void rejected();                           // a refused request
  void accepted(int n, int64_t max_tokens);  // a request's choices and limit
  void token_gap(double seconds);            // between two pieces of an answer
  void ended(const AnswerEnd& end);

  // The text format, with the loop's own numbers as they are now.
  std::string text(const RequestStats& stats);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::server
