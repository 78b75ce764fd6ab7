#include <fmt/format.h>

#include "backend/cuda/sampling/sample_case.h"
#include "braid/kernels/cuda/sampling/device/advance.h"
#include "braid/kernels/cuda/sampling/device/take_tokens.h"

namespace braid::cuda::test {
namespace {

TEST(Advance, InputsOfTheNextStep) {
  REQUIRE_DEVICE();
  constexpr int kPage = 16;
  constexpr int kStride = 5;
  for (const int capacity : {1, 5, 131, 300}) {
    const int rows = capacity == 1 ? 1 : capacity - 1;
    std::vector<int32_t> sampled, positions, kv_len, table;
    for (int s = 0; s < capacity; ++s) {
      sampled.push_back(1000 + s);
      positions.push_back(s * 7 % (kPage * kStride));  // some step past the last page
      kv_len.push_back(positions.back() + 1);
      for (int i = 0; i < kStride; ++i) table.push_back(i == 3 ? -1 : s * 11 + i);
    }
    const DeviceArray<int32_t> sampled_d(sampled), positions_d(positions), kv_len_d(kv_len),
        table_d(table);
    const auto n = static_cast<size_t>(capacity);
    const DeviceArray<int32_t> ids_d(n), slots_d(n);
    const DeviceArray<uint32_t> overrun_d(std::vector<uint32_t>(n, 0));
    const DeviceArray<uint64_t> step_d(std::vector<uint64_t>{41});
    const DeviceArray<int64_t> rows_d(std::vector<int64_t>{rows});
    advance({.sampled = sampled_d.data(),
             .token_ids = ids_d.data(),
             .positions = positions_d.data(),
             .kv_len = kv_len_d.data(),
             .slots = slots_d.data(),
             .page_table = table_d.data(),
             .page_table_stride = kStride,
             .page_size = kPage,
             .overrun = overrun_d.data(),
             .step = step_d.data(),
             .rows = rows_d.data(),
             .capacity = capacity},
            {});
    EXPECT_EQ(step_d.get()[0], 42u);
    const auto ids = ids_d.get(), slots = slots_d.get(), new_positions = positions_d.get(),
               new_kv = kv_len_d.get();
    const auto overrun = overrun_d.get();
    for (size_t s = 0; s < n; ++s) {
      SCOPED_TRACE(fmt::format("sequence {} of {}", s, capacity));
      if (static_cast<int>(s) >= rows) {
        EXPECT_EQ(ids[s], poison<int32_t>());
        EXPECT_EQ(slots[s], poison<int32_t>());
        EXPECT_EQ(new_positions[s], positions[s]);
        EXPECT_EQ(new_kv[s], kv_len[s]);
        continue;
      }
      const int32_t position = positions[s] + 1;
      const int32_t page = position / kPage;
      const bool missing = page >= kStride || page == 3;
      EXPECT_EQ(ids[s], sampled[s]);
      EXPECT_EQ(new_positions[s], position);
      EXPECT_EQ(new_kv[s], kv_len[s] + 1);
      EXPECT_EQ(overrun[s], missing ? 1u : 0u);
      EXPECT_EQ(
          slots[s],
          missing ? -1 : table[s * kStride + static_cast<size_t>(page)] * kPage + position % kPage);
    }
  }
}

// The host's inputs name sequences whose tokens it does not know; other ids stay, also ids that
// name no sequence.
TEST(TakeTokens, PutsSampledTokensIntoTheInputs) {
  REQUIRE_DEVICE();
  for (const int capacity : {1, 4, 64}) {
    for (const size_t n : {size_t{1}, size_t{9}, size_t{300}}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} sequences at most", n, capacity));
      std::vector<int32_t> sampled, ids;
      for (int s = 0; s < capacity; ++s) sampled.push_back(1000 + s);
      for (size_t t = 0; t < n; ++t) {
        const auto id = static_cast<int32_t>(t);
        ids.push_back(t % 3 == 1 ? id : -1 - id * 7 % (capacity + 1));
      }
      const DeviceArray<int32_t> sampled_d(sampled), ids_d(ids);
      const DeviceArray<uint64_t> step_d(std::vector<uint64_t>{0xffffffff});
      uint64_t* taken = nullptr;
      check_cuda(cudaMallocHost(&taken, sizeof(uint64_t)), "pinned");
      *taken = 7;
      take_tokens({.sampled = sampled_d.data(),
                   .capacity = capacity,
                   .token_ids = ids_d.data(),
                   .tokens = static_cast<int64_t>(n),
                   .step = step_d.data(),
                   .taken = reinterpret_cast<uint2*>(taken)},
                  {});
      const std::vector<int32_t> got = ids_d.get();
      EXPECT_EQ(step_d.get()[0], uint64_t{1} << 32);
      EXPECT_EQ(*taken, uint64_t{1} << 32);
      check_cuda(cudaFreeHost(taken), "pinned");
      for (size_t t = 0; t < n; ++t) {
        const int32_t s = -1 - ids[t];
        EXPECT_EQ(got[t], s >= 0 && s < capacity ? 1000 + s : ids[t]) << t;
      }
    }
  }
}

// A loop as an engine runs it: one graph replayed for each step, ids read one step behind from
// pinned memory, the stream never waited for.
TEST(DecodeLoop, GraphOfSampleAndAdvanceFollowsTheCpuSampler) {
  REQUIRE_DEVICE();
  constexpr int32_t kVocab = 32000;
  constexpr int kSteps = 40;
  std::vector<SamplingParams> params = {
      {},
      {.temperature = 1, .top_k = 40, .top_p = 0.95f, .seed = 9},
      {.temperature = 1, .repetition_penalty = 1.5f, .seed = 10},
      {.frequency_penalty = 3, .presence_penalty = 1, .logprobs = 4}};
  const auto n = params.size() + 1;
  SampleCase c(kVocab, params, choose({kVocab, static_cast<int32_t>(n)}, sampling_device()), 4);
  c.fill_logits("normal");
  const std::vector<float> logits = c.logits();

  const DeviceArray<int32_t> ids(n), positions(std::vector<int32_t>(n, 0)),
      kv_len(std::vector<int32_t>(n, 1)), slots(n), table(std::vector<int32_t>(n * 4, 2));
  const DeviceArray<uint32_t> overrun(std::vector<uint32_t>(n, 0));
  const AdvanceParams next{.sampled = c.call().token_ids,
                           .token_ids = ids.data(),
                           .positions = positions.data(),
                           .kv_len = kv_len.data(),
                           .slots = slots.data(),
                           .page_table = table.data(),
                           .page_table_stride = 4,
                           .page_size = 16,
                           .overrun = overrun.data(),
                           .step = const_cast<uint64_t*>(c.call().step),
                           .rows = c.call().rows,
                           .capacity = static_cast<int32_t>(n)};
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  const LaunchContext context{.stream = stream, .pdl = true};
  c.launch(context);
  advance(next, context);
  check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "graph");

  std::vector<std::vector<int32_t>> seen(params.size());
  for (uint64_t step = 0; step <= kSteps; ++step) {
    if (step < kSteps) check_cuda(cudaGraphLaunch(exec, stream), "replay");
    if (step == 0) continue;
    for (int32_t row = 0; row < c.rows(); ++row) {
      ASSERT_TRUE(c.ring().wait(step - 1, row, std::chrono::seconds(10))) << step;
      seen[static_cast<size_t>(row)].push_back(c.ring().record(step - 1, row).id);
    }
  }
  check_cuda(cudaStreamSynchronize(stream), "loop");
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  EXPECT_EQ(positions.get()[0], kSteps);
  EXPECT_EQ(overrun.get()[0], 0u);

  for (size_t row = 0; row < params.size(); ++row) {
    Sampler sampler(params[row]);
    std::vector<int32_t> generated;
    for (size_t step = 0; step < kSteps; ++step) {
      std::vector<float> values(logits.begin() + static_cast<ptrdiff_t>(row * kVocab),
                                logits.begin() + static_cast<ptrdiff_t>((row + 1) * kVocab));
      const int32_t id = sampler.sample(values, c.prompt(row), generated).id;
      ASSERT_EQ(seen[row][step], id) << "row " << row << " step " << step;
      generated.push_back(id);
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
