#pragma once

#include <string>

namespace braid::app {

std::string version_line();  // "braid 0.1.0 (cdae3b6)"
std::string cpu_line();      // "AMD EPYC 9B14, 2 cores"
// What this build and machine are: version, CUDA, instruction sets, devices; several lines.
std::string version_text();
// A line for each device for --device; the reason without a GPU.
std::string device_list();

}  // namespace braid::app
