#include "braid/backend/cuda/early_results.h"

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/base/error.h"

namespace braid::cuda {

EarlyResults::EarlyResults(CudaBackend& backend) : copy_(backend.allocate(sizeof(EarlyWords))) {}

void EarlyResults::add(uint32_t* word, std::function<void()> ready) {
  BRAID_CHECK(words_.num_words < EarlyWords::kMaxWords, "{} words", words_.num_words);
  words_.words[words_.num_words++] = word;
  ready_.push_back(std::move(ready));
}

void EarlyResults::upload() const {
  check_cuda(cudaMemcpy(copy_->data(), &words_, sizeof(words_), cudaMemcpyHostToDevice),
             "words of early results");
}

void EarlyResults::prepare() const {
  for (const auto& ready : ready_) ready();
}

void EarlyResults::tell(cudaStream_t stream) const {
  std::vector<StreamWord> writes;
  for (uint32_t i = 0; i < words_.num_words; ++i) {
    writes.push_back({StreamWord::Does::write, words_.words[i], 1});
  }
  put_words(stream, writes);
}

EarlyWords* EarlyResults::device() const {
  return reinterpret_cast<EarlyWords*>(copy_->data());
}

}  // namespace braid::cuda
