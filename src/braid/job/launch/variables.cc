#include "braid/job/launch/variables.h"

#include <charconv>

namespace braid::job {

const std::string* find(const Environment& env, std::string_view name) {
  const auto it = env.find(name);
  return it == env.end() || it->second.empty() ? nullptr : &it->second;
}

int number(const Environment& env, std::string_view name, int least, int most) {
  const std::string* text = find(env, name);
  int value = 0;
  if (text) {
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return value;
  }
  fail(ErrorCode::kInvalidArgument, "{} is '{}' in the environment, wanted a number from {} to {}",
       name, text ? *text : "", least, most);
}

std::optional<Launch> rank_and_size(const Environment& env, LaunchSource source,
                                    std::string_view rank, std::string_view size) {
  const bool has_rank = find(env, rank) != nullptr, has_size = find(env, size) != nullptr;
  if (!has_rank && !has_size) return {};
  if (has_rank != has_size) {
    fail(ErrorCode::kInvalidArgument,
         "{} is set in the environment and {} is not: wanted both, or --job none for one process",
         has_rank ? rank : size, has_rank ? size : rank);
  }
  Launch launch{.source = source, .processes = number(env, size, 1, kMaxProcesses)};
  launch.process = number(env, rank, 0, launch.processes - 1);
  return launch;
}

void add_meeting_place(const Environment& env, Launch& launch) {
  if (const std::string* host = find(env, "MASTER_ADDR")) launch.host = *host;
  launch.port = find(env, "MASTER_PORT") ? number(env, "MASTER_PORT", 1, 65535) : kDefaultPort;
}

}  // namespace braid::job
