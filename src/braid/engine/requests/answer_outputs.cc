#include "braid/engine/requests/answer_outputs.h"

#include <utility>

namespace braid {
namespace {

constexpr size_t kOutputs = 4096;  // tokens whose text is still to be made

}  // namespace

AnswerOutputs::AnswerOutputs(Written written)
    : written_(std::move(written)), outputs_(kOutputs), thread_([this] { write(); }) {}

void AnswerOutputs::prompt(std::shared_ptr<ActiveRequest> request) {
  outputs_.push({std::move(request), Prompt{}, {}});
}

void AnswerOutputs::token(std::shared_ptr<ActiveRequest> request, const SampledToken& token,
                          const AnswerEnd& facts, bool soon) {
  outputs_.add({std::move(request), token, facts});
  if (soon) wake();
}

void AnswerOutputs::end(std::shared_ptr<ActiveRequest> request) {
  ended_.push_back(std::move(request));
  look();
}

void AnswerOutputs::look() {
  std::erase_if(ended_, [&](const std::shared_ptr<ActiveRequest>& request) {
    if (!request->sampler.settled()) return false;
    outputs_.push({request, request->facts, {}});
    return true;
  });
}

void AnswerOutputs::settle() {
  for (const auto& request : ended_) request->sampler.settle();
  look();
}

void AnswerOutputs::finish() {
  outputs_.close();
  if (thread_.joinable()) thread_.join();
}

void AnswerOutputs::write() {
  while (std::optional<Output> output = outputs_.pop()) {
    ActiveRequest& request = *output->request;
    if (std::holds_alternative<Prompt>(output->what)) {
      request.writer.prompt(request.prompt);
    } else if (const auto* token = std::get_if<SampledToken>(&output->what)) {
      request.writer.token(*token, std::move(output->facts));
    } else {
      request.writer.end(std::get<AnswerEnd>(std::move(output->what)));
    }
    written_(request, std::holds_alternative<AnswerEnd>(output->what));
  }
}

}  // namespace braid
