#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

namespace braid::cuda {

// A word that a stream writes or waits for by itself, without a kernel or SM. The word is in device
// memory on the stream's GPU, or in pinned host memory.
struct StreamWord {
  enum class Does { write, wait };
  Does does = Does::write;
  uint32_t* word = nullptr;
  uint32_t value = 0;  // written after all earlier work in the stream; or awaited
};

// Puts words in order. Capturable, as a graph node. Only the word's writer bounds the wait, which
// also delays other streams in the same hardware queue.
void put_words(cudaStream_t stream, std::span<const StreamWord> words);

// Whether CUDA_DEVICE_MAX_CONNECTIONS gives this process the most queues: if streams share a queue,
// a wait may stand before the work that ends the wait.
bool has_queues_for_words();

}  // namespace braid::cuda
