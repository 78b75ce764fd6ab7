#pragma once

namespace braid {

// Bytes per second that `threads` threads together read from uncached memory: the best of several
// passes over 256 MiB. Takes a fraction of a second; the roof of decode speed.
double measure_read_bandwidth(int threads);

// A GPU's measured roofs: bytes per second of a read-only stream, and operations per second of a
// bf16 product of 8192^3. 0 without room or cuBLASLt.
struct DeviceRates {
  double read_bytes = 0;
  double products = 0;
};
DeviceRates measure_device_rates(int device);

}  // namespace braid
