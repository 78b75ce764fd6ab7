#include "braid/engine/attention/attention_cuda.h"

namespace braid::attention_modes {

std::unique_ptr<CudaModes> make_cuda_modes(const AttentionBench&, const Topology&) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA: only --device cpu");
}

}  // namespace braid::attention_modes
