#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "braid/engine/generate.h"

namespace braid::app {

inline void add_model(CLI::App& command, std::string& path) {
  command.add_option("-m,--model", path, "a .gguf file or a Hugging Face folder")->required();
}

// --tp and --threads. Ranges are checked by the engine, which knows the limits.
inline void add_parallel(CLI::App& command, EngineConfig& config) {
  command.add_option("--tp", config.tp, "ranks of tensor parallelism")->capture_default_str();
  command.add_option("--threads", config.threads, "threads of each rank (0: cores / tp)")
      ->capture_default_str();
}

}  // namespace braid::app
