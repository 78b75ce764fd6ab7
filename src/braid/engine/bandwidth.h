#pragma once

namespace braid {

// Bytes per second at which `threads` threads together read memory that no cache holds: the best of
// several passes over 256 MiB. Takes a fraction of a second; the roof of decode speed.
double measure_read_bandwidth(int threads);

}  // namespace braid
