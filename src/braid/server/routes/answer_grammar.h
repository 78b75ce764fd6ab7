#pragma once

#include <string>
#include <vector>

#include "braid/server/http/exchange.h"
#include "braid/server/routes/messages.h"
#include "braid/server/service.h"

namespace braid::server {

// An answer's required form, and the field that names the form.
struct AnswerTag {
  std::string tag;    // grammar_tag.h; empty: anything
  std::string field;  // for errors
};

// By response_format, text, structured_outputs. Fails with ApiError 400, naming the field, where
// the words cannot be kept or contradict other fields.
AnswerTag answer_tag(const Body& body);
// The same for a conversation, whose functions may have to be called.
AnswerTag answer_tag(const Body& body, const ChatRequest& chat);

// Binds each answer to the tag's grammar, if any: the tag compiles meanwhile. False: the client
// has gone. Fails with ApiError 400 if the grammar passes a limit, or in a build without
// grammars.
boost::asio::awaitable<bool> constrain(Service& service, Exchange& exchange, const AnswerTag& tag,
                                       const ReasoningMarks& marks,
                                       std::vector<AnswerRequest>& requests);

}  // namespace braid::server
