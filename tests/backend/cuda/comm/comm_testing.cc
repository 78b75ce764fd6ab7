#include "backend/cuda/comm/comm_testing.h"

#include <algorithm>

#include "backend/cuda/queues.h"
#include "braid/fabric/nvshmem/device/nvshmem_fabric.h"
#include "braid/fabric/rank_threads.h"
#include "braid/job/job.h"

namespace braid::cuda::test {

namespace {

template <class T>
uint32_t bits_of(T x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}
template <class T>
T from_bits(uint32_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

}  // namespace

namespace {

// The job of this program, from before the first test to after the last; null without a launcher.
std::unique_ptr<job::Job> the_job;

class JobOfTests : public testing::Environment {
 public:
  void SetUp() override {
    const job::Launch launch = job::choose_launch(job::this_environment(), "auto", job::has_pmix());
    if (launch.processes > 1) the_job = job::start_job({.launch = launch});
  }
  void TearDown() override {
    if (!the_job) return;
    the_job->finish();
    the_job.reset();
  }
};
const auto* const job_of_tests = testing::AddGlobalTestEnvironment(new JobOfTests);

}  // namespace

int job_processes() {
  return the_job ? the_job->processes() : 0;
}

World::World(const fabric::PeerFabricConfig& config)
    : fabric_(std::make_unique<fabric::PeerFabric>(config)) {}

World::World(const WorldKind& kind) {
  const fabric::PeerFabricConfig config = fabric_config(kind);
  if (!the_job || kind.ranks != the_job->processes()) {
    fabric_ = std::make_unique<fabric::PeerFabric>(config);
    return;
  }
  fabric_ = std::make_unique<fabric::NvshmemFabric>(
      fabric::NvshmemFabricConfig{
          .device = device_count() == 1 ? 0 : the_job->process(),
          .deadline = config.deadline,
          .device_deadline = config.device_deadline,
          .meeting = {
              .process = the_job->process(),
              .processes = the_job->processes(),
              .agree = [](std::string_view what,
                          std::string_view value) { the_job->agree(what, value); },
              .broadcast = [](std::string_view what,
                              std::string_view value) { return the_job->broadcast(what, value); }}},
      the_job->make_fabric({.ranks = kind.ranks, .deadline = config.deadline}));
}

void World::run(const std::function<void(fabric::DeviceEndpoint&)>& fn) {
  fabric::run_rank_threads(*fabric_, [&](int rank) {
    auto& endpoint = dynamic_cast<fabric::DeviceEndpoint&>(fabric_->endpoint(rank));
    check_cuda(cudaSetDevice(endpoint.device()), "choice of the device");
    fn(endpoint);
  });
}

uint32_t encode(DType dtype, float x) {
  if (dtype == DType::bf16) return bits_of(to_bf16(x));
  if (dtype == DType::f16) return bits_of(to_f16(x));
  return bits_of(x);
}

float decode(DType dtype, uint32_t bits) {
  if (dtype == DType::bf16) return to_float(from_bits<bf16>(bits));
  if (dtype == DType::f16) return to_float(from_bits<f16>(bits));
  return from_bits<float>(bits);
}

std::vector<fabric::PeerFabricConfig> machines() {
  std::vector<fabric::PeerFabricConfig> all;
  if (device_count() == 0 || job_processes() > 0) return all;
  for (int ranks : {2, 2, 4}) {
    if (ranks > std::max(device_count(), 2)) continue;
    fabric::PeerFabricConfig config = fabric_config({ranks, device_count() < ranks});
    if (device_count() > 1) config.devices.clear();  // in turns
    config.links.machines = 2;
    if (all.empty()) config.links.cluster_link = Link{2e9, 10e-6};
    all.push_back(config);
  }
  return all;
}

TestBuffer::TestBuffer(fabric::DeviceEndpoint& endpoint, int64_t capacity, const std::string& name,
                       bool symmetric)
    : total_(capacity + 3 * kGuard) {
  if (symmetric) {
    symmetric_ = endpoint.allocate<std::byte>(total_, name);
    base_ = symmetric_.data();
  } else {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, total_), "test memory");
    base_ = own_ = static_cast<std::byte*>(memory);
  }
}

TestBuffer::~TestBuffer() {
  if (own_) cudaFree(own_);
}

void TestBuffer::start(int64_t bytes, int64_t shift) {
  BRAID_CHECK(bytes + shift + 2 * kGuard <= total_, "{} bytes at {} of {}", bytes, shift, total_);
  bytes_ = bytes;
  shift_ = shift;
  const TestStream stream;
  check_cuda(cudaMemsetAsync(base_, 0xff, bytes + shift + 2 * kGuard, stream.get()), "poison");
  stream.synchronize();
}

void TestBuffer::upload(const std::vector<std::byte>& bytes) {
  const TestStream stream;
  check_cuda(cudaMemcpyAsync(data(), bytes.data(), bytes.size(), cudaMemcpyDefault, stream.get()),
             "upload");
  stream.synchronize();
}

std::vector<std::byte> TestBuffer::download() const {
  const TestStream stream;
  std::vector<std::byte> out(bytes_);
  check_cuda(cudaMemcpyAsync(out.data(), data(), bytes_, cudaMemcpyDefault, stream.get()),
             "download");
  stream.synchronize();
  return out;
}

bool TestBuffer::guards_intact() const {
  const TestStream stream;
  const int64_t before = kGuard + shift_;
  std::vector<std::byte> edges(before + kGuard);
  check_cuda(cudaMemcpyAsync(edges.data(), base_, before, cudaMemcpyDefault, stream.get()),
             "download");
  check_cuda(cudaMemcpyAsync(edges.data() + before, base_ + before + bytes_, kGuard,
                             cudaMemcpyDefault, stream.get()),
             "download");
  stream.synchronize();
  return std::all_of(edges.begin(), edges.end(), [](std::byte b) { return b == std::byte{0xff}; });
}

TestGraph::TestGraph(cudaStream_t stream, const std::function<void()>& record) {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  record();
  check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
  const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, "instantiation");
  check_cuda(cudaGraphUpload(exec_, stream), "upload of a graph");
  check_cuda(cudaStreamSynchronize(stream), "upload of a graph");
}

TestGraph::~TestGraph() {
  cudaGraphExecDestroy(exec_);
}

}  // namespace braid::cuda::test
