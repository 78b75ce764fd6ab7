#include "braid/engine/requests/answer_outputs.h"

#include <utility>

namespace braid {
namespace {

constexpr size_t kOutputs = 2048;  // most waiting outputs; the thread may hold as many again

}  // namespace

AnswerOutputs::AnswerOutputs(Written written)
    : written_(std::move(written)), outputs_(kOutputs), thread_([this] { write(); }) {}

void AnswerOutputs::prompt(ActiveRequest& request) {
  outputs_.push({&request, Prompt{}});
}

void AnswerOutputs::token(ActiveRequest& request, const SampledToken& token, bool soon) {
  outputs_.add({&request, Token{token, request.facts}});
  if (soon) wake();
}

void AnswerOutputs::end(std::shared_ptr<ActiveRequest> request) {
  ended_.push_back(std::move(request));
  look();
}

void AnswerOutputs::look() {
  std::erase_if(ended_, [&](const std::shared_ptr<ActiveRequest>& request) {
    if (!request->sampler.settled()) return false;
    outputs_.push({request.get(), request});
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
  std::vector<Output> outputs;
  while (outputs_.take(outputs)) {
    for (Output& output : outputs) write(output);
  }
}

void AnswerOutputs::write(Output& output) {
  ActiveRequest& request = *output.request;
  if (const Token* const token = std::get_if<Token>(&output.what)) {
    request.writer.token(token->token, token->facts);
  } else if (std::holds_alternative<Prompt>(output.what)) {
    request.writer.prompt(request.prompt);
  } else {
    request.writer.end(request.facts);
  }
  written_(request, std::holds_alternative<End>(output.what));
  output.what = Prompt{};  // frees an ended request before later outputs are written
}

}  // namespace braid
