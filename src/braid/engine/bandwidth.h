#pragma once

namespace braid {

// Bytes per second that `threads` threads together read from uncached memory: the best pass over
// 256 MiB, the roof for decode speed. Takes a fraction of a second.
double measure_read_bandwidth(int threads);

// A GPU's measured roofs: bytes per second for a read-only stream, operations per second for a bf16
// product with M = N = K = 8192. 0 without room or cuBLASLt.
struct DeviceRates {
  double read_bytes = 0;
  double products = 0;
};
DeviceRates measure_device_rates(int device);

}  // namespace braid
