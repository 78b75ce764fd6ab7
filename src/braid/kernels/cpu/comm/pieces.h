#pragma once

#include <cstdint>

#include "braid/parallel/topology.h"

namespace braid::cpu {

// In how many pieces to send `seconds` of traffic that work can hide: the last piece's time is
// exposed, and each piece costs its signals, its barrier and its share of repeated preparation.
// 1 where the link is not slower than memory (bytes_per_second 0): there a put is a copy by the
// caller and nothing runs beside it.
int64_t choose_pieces(double bytes, const Link& link);

}  // namespace braid::cpu
