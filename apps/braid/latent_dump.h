#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "braid/io/safetensors_writer.h"
#include "braid/io/text_file.h"
#include "braid/text_io.h"

namespace braid::app {

// The noise and each step's result, as tensors "image.step".
class LatentDump {
 public:
  explicit LatentDump(std::string path) : path_(std::move(path)) {
    require_writable("--dump-latents", path_);
  }
  void add(int64_t image, int64_t step, std::span<const float> latents, int64_t channels) {
    tensors_.push_back({fmt::format("{}.{}", image, step),
                        {std::ssize(latents) / channels, channels},
                        {latents.begin(), latents.end()}});
  }
  void write() const { write_file(path_, safetensors_bytes(tensors_)); }

 private:
  std::string path_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace braid::app
