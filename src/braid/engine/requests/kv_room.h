#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "braid/model/model.h"

namespace braid {

// Memory for a KV cache of many requests, and the consequences.
struct KvRoomRequest {
  int64_t bytes_free = 0;      // in the cache's memory
  int64_t bytes_wanted = 0;    // for the cache; 0: at most a quarter of the free memory
  int64_t token_bytes = 0;     // keys and values of a token, all layers
  int64_t page_size = 64;      // tokens
  int64_t context = 0;         // tokens of a sequence, wanted or the model's
  bool context_named = false;  // the user asked for this context
  int64_t sequences = 1;       // at once
};

struct KvRoom {
  int64_t pages = 0;
  int64_t context = 0;  // tokens of a sequence: no more than the pages hold
};

// Pages for all sequences at full context, or as many as fit. Fails with kResource if no sequence
// of two pages fits, or less than a user's context: names the memory for such a context, the
// present memory, and the options for both.
KvRoom kv_room(const KvRoomRequest& request);

// Bytes of a token's keys and values over all layers.
int64_t kv_token_bytes(const ModelConfig& config, DType dtype);

// Memory that this process can still take: the machine's available memory, or less if its cgroup
// allows less.
int64_t available_memory();

// "512M", "4GiB", "1.5g" or bytes; 0 for "auto". Nothing where the text is no size.
std::optional<int64_t> parse_size(std::string_view text);

}  // namespace braid
