#include "braid/backend/cuda/requests.h"

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/base/error.h"

namespace braid::cuda {

Requests::Requests(CudaBackend& backend) : copy_(backend.allocate(sizeof(EarlyWords))) {}

void Requests::add(uint32_t* word, std::function<void()> ready) {
  BRAID_CHECK(words_.num_words < EarlyWords::kMaxWords, "{} words", words_.num_words);
  words_.words[words_.num_words++] = word;
  ready_.push_back(std::move(ready));
}

void Requests::upload() const {
  check_cuda(cudaMemcpy(copy_->data(), &words_, sizeof(words_), cudaMemcpyHostToDevice),
             "words of requests");
}

void Requests::prepare() const {
  for (const auto& ready : ready_) ready();
}

void Requests::write(cudaStream_t stream) const {
  std::vector<StreamWord> writes;
  for (uint32_t* word : words()) writes.push_back({StreamWord::Does::write, word, 1});
  put_words(stream, writes);
}

EarlyWords* Requests::device() const {
  return reinterpret_cast<EarlyWords*>(copy_->data());
}

}  // namespace braid::cuda
