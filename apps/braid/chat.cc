#include "braid/chat.h"

#include <iostream>

#include "braid/text_io.h"

namespace braid::app {

void chat_loop(const RunOptions& options, LoadedModel& loaded, Engine& engine) {
  const ChatPrompt chat(loaded);
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  for (std::string line;;) {
    print("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    const size_t before = messages.size();
    try {
      require_utf8(line, "the message");
      messages.push_back({"user", line});
      Request request = options.request;
      request.prompt = chat.encode(messages);
      const Generation g = engine.generate(request, [](std::string_view piece) {
        print(piece);
        return true;
      });
      messages.push_back({"assistant", g.text});
    } catch (const Error& error) {  // the conversation goes on without the message
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      std::fprintf(stderr, "braid: %s\n", error.what());
      messages.resize(before);
    }
    print("\n\n");
  }
  print("\n");
}

}  // namespace braid::app
