#pragma once

#include "braid/engine/chat_prompt.h"
#include "braid/server/schema/fields.h"

namespace braid::server {

// The conversation of a body of /v1/responses, in chat templates' form, without tools: instructions
// as the first system message, then the input's items. Reasoning, a message and calls that follow
// each other are a single message of the assistant. Fails with ApiError 400, naming the item.
ChatMessages response_conversation(const Body& body);

}  // namespace braid::server
