#pragma once

#include "braid/server/http/exchange.h"
#include "braid/server/service.h"

namespace braid::server {

// POST /v1/chat/completions
boost::asio::awaitable<void> chat_completions(Service& service, Exchange& exchange);
// POST /v1/completions
boost::asio::awaitable<void> completions(Service& service, Exchange& exchange);
// POST /v1/responses
boost::asio::awaitable<void> responses(Service& service, Exchange& exchange);

}  // namespace braid::server
