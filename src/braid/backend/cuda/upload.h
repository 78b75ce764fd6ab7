#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "braid/tensor/view.h"

namespace braid::cuda {

struct UploadConfig {
  int threads = 0;                // that read the host memory; 0: by the machine, at most 8
  int64_t piece_bytes = 4 << 20;  // per copy; each thread has two pinned buffers of this size
};

// Copies host memory (for instance a mapped file) to a device: threads read pieces into pinned
// buffers while copy engines drain earlier buffers. Used from a single thread; the sources must
// stay until `finish`.
class Uploader {
 public:
  // Starts the threads; they pin their buffers at their first piece.
  explicit Uploader(int device, const UploadConfig& config = {});
  ~Uploader();  // drops uncopied data
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // dst [src.bytes()] on the device becomes the packed rows of `src`; returns at once. Fails with
  // an earlier copy's error, if any.
  void copy(void* dst, const TensorView& src);

  // Returns when all copies are in device memory; fails if any copy failed. More may follow.
  void finish();

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace braid::cuda
