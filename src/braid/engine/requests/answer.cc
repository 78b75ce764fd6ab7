#include "braid/engine/requests/answer.h"

#include "braid/engine/requests/scheduler.h"

namespace braid {
namespace {

void check_ids(std::string_view where, std::span<const int32_t> ids, int64_t vocabulary) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    fail(ErrorCode::kInvalidArgument, "token id {} {}, the vocabulary has 0 to {}", id, where,
         vocabulary - 1);
  }
}

}  // namespace

void check(const AnswerRequest& request, const SchedulerConfig& config, int64_t vocabulary) {
  check(request.sampling);
  Scheduler::check_prompt(config, std::ssize(request.prompt));
  check_ids("in the prompt", request.prompt, vocabulary);
  check_ids("that stops", request.stop_ids, vocabulary);
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    check_ids("in logit-bias", {&id, 1}, vocabulary);
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) fail(ErrorCode::kInvalidArgument, "a stop text is empty");
  }
}

}  // namespace braid
