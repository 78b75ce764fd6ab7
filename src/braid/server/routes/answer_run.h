#pragma once

#include <vector>

#include "braid/server/http/exchange.h"
#include "braid/server/routes/answer_form.h"
#include "braid/server/service.h"

namespace braid::server {

// Computes all choices, by prompt, and answers in `form`, whole or as a stream. `parser`: a copy
// divides each answer. A stream that fails on its way ends with the form's last events; all other
// failures are thrown as ApiError or Error.
boost::asio::awaitable<void> answer(Service& service, Exchange& exchange,
                                    std::vector<AnswerRequest> requests, int choices_per_prompt,
                                    bool stream, AnswerForm& form, const AnswerParser& parser);

}  // namespace braid::server
