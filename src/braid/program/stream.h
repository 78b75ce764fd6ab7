#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace braid {

// The queues of a rank. Launches of one stream run in recorded order; streams run beside each other
// but for the waits that a Schedule holds.
enum class Stream : uint8_t {
  compute,  // what bounds the step as a rule: the rank's threads, or the main stream of its GPU
  comm,     // communication
  side,     // work that leaves the compute units idle and may run beside them, as decode attention
};
constexpr int kNumStreams = 3;
constexpr std::array<Stream, kNumStreams> kStreams = {Stream::compute, Stream::comm, Stream::side};

constexpr std::string_view to_string(Stream stream) {
  constexpr std::array<std::string_view, kNumStreams> kNames = {"compute", "comm", "side"};
  return kNames[static_cast<size_t>(stream)];
}

}  // namespace braid
