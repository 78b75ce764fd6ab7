#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "braid/base/enum_array.h"

namespace braid {

// The queues of a rank. Launches of a stream run in recorded order; streams run beside each other
// except for the Schedule's waits.
enum class Stream : uint8_t {
  compute,  // mostly the step's bound: the rank's threads, or its GPU's main stream
  comm,     // communication
  side,     // transfers inside a ring group, or work that leaves compute units idle
};
constexpr int kNumStreams = 3;
constexpr std::array<Stream, kNumStreams> kStreams = {Stream::compute, Stream::comm, Stream::side};

template <class T>
using PerStream = EnumArray<Stream, T, kNumStreams>;

constexpr std::string_view to_string(Stream stream) {
  constexpr PerStream<std::string_view> kNames = {"compute", "comm", "side"};
  return kNames[stream];
}

}  // namespace braid
