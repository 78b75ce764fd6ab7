#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

namespace braid::cuda {

// A word that a stream writes or waits for by itself: no kernel, so no SM. It is device memory of
// the stream's GPU or pinned host memory.
struct StreamWord {
  enum class Does { write, wait };
  Does does = Does::write;
  uint32_t* word = nullptr;
  uint32_t value = 0;  // written, after all that is before it in the stream; or waited for
};

// One after the other. Capturable, as one node of a graph. Nothing bounds the wait but who writes
// the word; it holds up what other streams put into the same hardware queue.
void put_words(cudaStream_t stream, std::span<const StreamWord> words);

// Whether CUDA_DEVICE_MAX_CONNECTIONS gives this process as many queues as there can be: where
// streams share one a wait may stand before what it waits for.
bool has_queues_for_words();

}  // namespace braid::cuda
