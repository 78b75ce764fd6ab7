#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace braid {

// Tokens per block in TraceRequest::blocks.
inline constexpr int64_t kTraceBlock = 512;

// A request of a recorded or generated load.
struct TraceRequest {
  double arrival = 0;           // seconds from the first request's arrival
  int64_t input = 1;            // tokens of the prompt, at least 1
  int64_t output = 1;           // tokens of the answer, at least 1
  std::vector<int64_t> blocks;  // ids of the prompt's blocks: prompts with the same first ids share
                                // their first blocks. Empty: the prompt shares nothing
};

// Gives the next request; false after the last.
using TraceSource = std::function<bool(TraceRequest& request)>;

// Opens a trace and reads a line at a time. The first line says the format:
// - Mooncake's JSONL: {"timestamp": ms, "input_length", "output_length", "hash_ids"}; the ids of
//   ceil(input_length / 512) blocks, each once, or no ids at all.
// - Azure's CSV: TIMESTAMP,ContextTokens,GeneratedTokens; a time is YYYY-MM-DD HH:MM:SS[.FRACTION],
//   perhaps with +00:00.
// An answer of 0 tokens counts as 1: a prompt's step makes a token. Fails with kNotFound without
// the file. The source fails with kMalformed, "FILE:LINE: ...", on a line that is cut, on numbers
// out of range, and on a time before the line before.
TraceSource open_trace(const std::string& path);

// The same source, with arrivals `rate` times as dense, lengths times `lengths` (then without
// blocks), and at most `limit` requests (0: all).
struct TraceScale {
  double rate = 1;
  double lengths = 1;
  int64_t limit = 0;
};
TraceSource scaled(TraceSource source, const TraceScale& scale);

}  // namespace braid
