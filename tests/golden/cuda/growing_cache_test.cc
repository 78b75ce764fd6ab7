// A KV cache on a GPU takes memory as its pages are used, in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/growing_memory.h"
#include "braid/backend/cuda/handles.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/texts.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

class CudaGrowingMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
    gpu_memory(0);  // CUDA's own memory is there
  }
  static std::vector<std::byte> read(const std::byte* data, size_t bytes) {
    std::vector<std::byte> host(bytes, std::byte{0x5a});
    cuda::check_cuda(cudaMemcpy(host.data(), data, bytes, cudaMemcpyDeviceToHost), "reading");
    return host;
  }
};

TEST_F(CudaGrowingMemory, TakesMemoryAsItIsBackedAndKeepsItsAddresses) {
  const GpuMemory before = gpu_memory(0);
  cuda::GrowingMemory memory(0, 2 * before.total);
  EXPECT_GE(gpu_memory(0).free, before.free - kMiB) << "addresses alone take none";
  std::byte* const data = memory.data();
  memory.back(100);
  EXPECT_GE(memory.backed(), 100);
  EXPECT_EQ(read(data, 100), std::vector<std::byte>(100, std::byte{0}));

  // A graph that is captured before the memory grows, and runs after.
  const cuda::OwnedStream stream = cuda::make_stream();
  cuda::check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "begin");
  cuda::check_cuda(cudaMemsetAsync(data + 50, 0x77, 50, stream.get()), "memset");
  cudaGraph_t graph = nullptr;
  cuda::check_cuda(cudaStreamEndCapture(stream.get(), &graph), "end");
  const cuda::OwnedGraph owned(graph);
  cudaGraphExec_t exec = nullptr;
  cuda::check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  const cuda::OwnedGraphExec owned_exec(exec);
  cuda::check_cuda(cudaMemset(data, 0x11, 100), "fill");
  const int64_t end = 64 * kMiB + 12345;
  memory.back(end);
  EXPECT_EQ(memory.data(), data);
  cuda::check_cuda(cudaGraphLaunch(exec, stream.get()), "launch");
  cuda::check_cuda(cudaStreamSynchronize(stream.get()), "wait");
  std::vector<std::byte> want(100, std::byte{0x77});
  std::fill_n(want.begin(), 50, std::byte{0x11});
  EXPECT_EQ(read(data, 100), want);
  EXPECT_EQ(read(data + end - 1000, 1000), std::vector<std::byte>(1000, std::byte{0}));
  const int64_t taken = before.free - gpu_memory(0).free;
  EXPECT_GE(taken, end);
  EXPECT_LE(taken, end + 8 * kMiB);
}

TEST_F(CudaGrowingMemory, GrowsWhileAStreamWaitsForTheHost) {
  cuda::GrowingMemory memory(0, 1 << 30);
  std::atomic<bool> go{false}, late{false};
  const cuda::OwnedStream stream = cuda::make_stream();
  struct Wait {
    std::atomic<bool>&go, &late;
  } wait{go, late};
  cuda::check_cuda(cudaLaunchHostFunc(
                       stream.get(),
                       [](void* data) {
                         auto& w = *static_cast<Wait*>(data);
                         for (int i = 0; i < 500 && !w.go; ++i) {
                           std::this_thread::sleep_for(std::chrono::milliseconds(10));
                         }
                         w.late = !w.go;
                       },
                       &wait),
                   "");
  memory.back(32 * kMiB);
  go = true;
  cuda::check_cuda(cudaStreamSynchronize(stream.get()), "");
  EXPECT_FALSE(late) << "growing waits for the stream";
}

TEST_F(CudaGrowingMemory, AFullGpuIsAnErrorThatLeavesWhatIsThere) {
  const GpuMemory before = gpu_memory(0);
  cuda::GrowingMemory memory(0, 2 * before.total);
  memory.back(4 * kMiB);
  cuda::check_cuda(cudaMemset(memory.data(), 0x22, 1000), "");
  const int64_t backed = memory.backed();
  try {
    memory.back(before.total + kMiB);
    FAIL() << "more than the GPU has";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    EXPECT_THAT(error.what(), HasSubstr("cuda:0 cannot give "));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
  EXPECT_EQ(memory.backed(), backed);
  memory.back(8 * kMiB);
  EXPECT_EQ(read(memory.data(), 1000), std::vector<std::byte>(1000, std::byte{0x22}));
}

class CudaGrowingCache : public CudaGrowingMemory {
 protected:
  void SetUp() override {
    CudaGrowingMemory::SetUp();
    if (IsSkipped()) return;
    folder_ = std::make_unique<Folder>("growing_cache");
    write_hf_folder(load_random_model("llama2_mha"), folder_->path());
    loaded_ = std::make_unique<LoadedModel>(folder_->path().string());
    golden_ = load_golden("llama2_mha");
  }
  // A cache that is larger than the GPU.
  RunnerConfig config(int tp) const {
    RunnerConfig config = cuda_runner(tp);
    const ModelConfig& c = loaded_->model.config();
    const int64_t page = kPageSize * c.layers * bytes_of(DType::bf16, c.cached_numbers(tp));
    config.cache.pages = ceil_div(5 * gpu_memory(0).total, 4 * page);
    return config;
  }
  // Pages so far apart that each takes memory.
  static std::vector<int32_t> far(int64_t pages, int32_t step) {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < pages; ++i) all.push_back(static_cast<int32_t>(i) * step);
    return all;
  }

  std::unique_ptr<Folder> folder_;
  std::unique_ptr<LoadedModel> loaded_;
  Golden golden_;
};

TEST_F(CudaGrowingCache, ALargerOneThanTheGpuComputesTheSame) {
  for (int tp = 1; tp <= 2 && !cannot_run(tp); ++tp) {
    SCOPED_TRACE(tp);
    Runner small(loaded_->model, cuda_runner(tp));
    const std::vector<int32_t>& prompt = golden_.cases[0].prompt;
    const Rows want = prompt_logits(small, prompt, 7);
    const int64_t before = gpu_memory(0).free;
    Runner large(loaded_->model, config(tp));
    EXPECT_EQ(prompt_logits(large, prompt, 7), want);
    EXPECT_LT(before - gpu_memory(0).free, 512 * kMiB) << "arenas and a few pages";

    // Each page of these takes memory, in steps and in a loop, whose steps wait for masks.
    constexpr int64_t kTokens = 40;
    const std::vector<int32_t> pages =
        far(ceil_div(std::ssize(prompt) + kTokens, kPageSize) + 1, 10000);
    const std::vector<uint32_t> all(static_cast<size_t>(ceil_div(loaded_->model.config().V, 32)),
                                    ~0u);
    std::vector<int32_t> ids[2];
    for (const bool spread : {false, true}) {
      const std::vector<int32_t> own = spread ? pages : far(std::ssize(pages), 1);
      Batch batch(kPageSize);
      batch.add(prompt, 0, own, 1);
      large.step(batch);
      LoopRequest request{.limit = kTokens};
      request.sequences.push_back(
          {.prompt = prompt,
           .hold = [&](int64_t tokens) -> std::span<const int32_t> {
             return std::span(own).first(static_cast<size_t>(ceil_div(tokens, kPageSize)));
           },
           .mask = [&](std::span<const int32_t>) { return std::span<const uint32_t>(all); }});
      const auto loop = large.loop(std::move(request));
      for (int64_t i = 0; i < kTokens; ++i) {
        const SampledToken& token = loop->next()[0];
        ASSERT_FALSE(token.error) << token.error->what();
        ids[spread].push_back(token.id);
      }
    }
    EXPECT_EQ(ids[0], ids[1]);
  }
}

TEST_F(CudaGrowingCache, AFullGpuEndsTheStepAndNotTheRunner) {
  const RunnerConfig config = this->config(1);
  Runner runner(loaded_->model, config);
  const std::vector<int32_t>& prompt = golden_.cases[0].prompt;
  const Rows want = prompt_logits(runner, prompt, 64);
  std::vector<int32_t> pages = far(ceil_div(std::ssize(prompt), kPageSize), 1);
  pages[0] = static_cast<int32_t>(config.cache.pages - 1);
  Batch batch(kPageSize);
  batch.add(prompt, 0, pages, 1);
  try {
    runner.step(batch);
    FAIL() << "a page behind the GPU's memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    EXPECT_THAT(error.what(), HasSubstr("the KV cache cannot grow to "));
    EXPECT_THAT(error.what(), HasSubstr("cuda:0 cannot give "));
  }
  EXPECT_EQ(prompt_logits(runner, prompt, 64), want);
}

}  // namespace
}  // namespace braid::golden
