#pragma once

#include "braid/server/schema/fields.h"
#include "braid/server/service.h"

namespace braid::server {

// A prompt of a completion: ids and, for echo, text.
struct TextPrompt {
  std::vector<int32_t> ids;
  std::string text;
};
std::vector<TextPrompt> text_prompts(const Service& service, const Json& prompt);

// Shared by answers to a client (the name of its key), from the body's fields: everything but the
// prompt.
AnswerRequest answer_request(const Service& service, const Body& body, const std::string& client);

// Fails with ApiError 404 if a body names another model than the served model.
void check_model(const Service& service, const Body& body);

// The body's fields that mean nothing here, for the log.
std::string unknown_fields(const Body& body);

}  // namespace braid::server
