#include "braid/attention_cuda.h"

namespace braid::app {

std::unique_ptr<CudaModes> make_cuda_modes(const AttentionBench&, const Topology&) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA: only --device cpu");
}

}  // namespace braid::app
