#pragma once

#include <cstdint>

#include "braid/parallel/topology.h"

namespace braid::cpu {

// Number of pieces for traffic that work can hide: the last piece's time is exposed, and each
// piece costs signals, a barrier and a share of repeated preparation. 1 for a link as fast as
// memory (bytes_per_second 0): there a put is a copy by the caller, and nothing runs beside the
// copy.
int64_t choose_pieces(double bytes, const Link& link);

}  // namespace braid::cpu
