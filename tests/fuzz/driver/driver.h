#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What a fuzz target in this folder defines. TestOneInput takes any bytes: it may throw
// braid::Error (a clean refusal); anything else it throws, a crash or a hang is a finding.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Valid inputs that the built-in driver mutates; libFuzzer takes a corpus folder in their place.
std::vector<std::string> fuzz_seeds();
