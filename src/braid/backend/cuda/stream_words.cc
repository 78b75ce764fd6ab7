#include "braid/backend/cuda/stream_words.h"

#include <cuda.h>

#include <cstdlib>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/driver_function.h"
#include "braid/backend/cuda/toolkit.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

void check_driver(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) {
    fail(ErrorCode::kResource, "words of a stream: {} gave error {}", what,
         static_cast<int>(result));
  }
}

CUstreamBatchMemOpParams operation(const StreamWord& w) {
  CUstreamBatchMemOpParams p{};
  if (w.does == StreamWord::Does::write) {
    p.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    p.writeValue.address = reinterpret_cast<CUdeviceptr>(w.word);
    p.writeValue.value = w.value;
    p.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  } else {
    p.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    p.waitValue.address = reinterpret_cast<CUdeviceptr>(w.word);
    p.waitValue.value = w.value;
    p.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  return p;
}

// Streams that are captured take no such operations: the node is made by hand.
void add_node(cudaStream_t stream, const toolkit::Capture& capture,
              std::vector<CUstreamBatchMemOpParams>& operations) {
  static auto* const current = driver_function<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
  static auto* const add =
      driver_function<decltype(cuGraphAddBatchMemOpNode)>("cuGraphAddBatchMemOpNode");
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  check_driver(current(&params.ctx), "cuCtxGetCurrent");
  params.count = static_cast<unsigned>(operations.size());
  params.paramArray = operations.data();
  CUgraphNode node = nullptr;
  check_driver(add(&node, capture.graph, capture.after, capture.count, &params),
               "cuGraphAddBatchMemOpNode");
  check_cuda(toolkit::continue_capture(stream, node), "words of a captured stream");
}

}  // namespace

void put_words(cudaStream_t stream, std::span<const StreamWord> words) {
  if (words.empty()) return;
  std::vector<CUstreamBatchMemOpParams> operations;
  for (const StreamWord& w : words) operations.push_back(operation(w));
  toolkit::Capture capture;
  check_cuda(toolkit::get_capture(stream, capture), "whether a stream is captured");
  if (capture.status != cudaStreamCaptureStatusNone) return add_node(stream, capture, operations);
  static auto* const put = driver_function<decltype(cuStreamBatchMemOp)>("cuStreamBatchMemOp");
  check_driver(put(stream, static_cast<unsigned>(operations.size()), operations.data(), 0),
               "cuStreamBatchMemOp");
}

bool has_queues_for_words() {
  constexpr int kMost = 32;
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return queues != nullptr && std::atoi(queues) >= kMost;
}

}  // namespace braid::cuda
