#include "braid/engine/step_memory.h"

#include <algorithm>
#include <limits>

#include "braid/base/math.h"
#include "braid/engine/step_fit.h"
#include "braid/engine/step_planners.h"

namespace braid {
namespace {

// Where a step is not planned: bytes of a token, an 8B model's.
constexpr int64_t kTokenActivations = 64 << 10;

}  // namespace

std::vector<ContextRoom> StepMemory::rooms(int64_t step) const {
  const ModelConfig& c = model_.config();
  std::map<int, int> ranks;                                // on each GPU
  if (config_.job) ranks[config_.device.first_gpu()] = 1;  // of process 0; the others have as many
  for (int r = 0; !config_.job && r < config_.tp; ++r) {
    const auto& ids = config_.device.ids;
    ++ranks[ids.empty() ? r : ids[static_cast<size_t>(r) % ids.size()]];
  }
  const int parts = config_.sp ? 1 : config_.tp;
  // Where a rank with all tokens thins, a step copies all keys, and the kept ones once more.
  const int64_t copies = config_.sp && config_.tp > 1 ? copied_layers(config_.tp)
                         : config_.thinning           ? 4
                                                      : 0;
  std::vector<ContextRoom> found;
  for (const auto& [id, on_it] : ranks) {
    const GpuMemory memory = gpu_memory(id);
    found.push_back({.free = memory.free,
                     .total = memory.total,
                     .weights = on_it * ceil_div(model_.weight_bytes(), parts),
                     .token = on_it * (c.layers + copies) *
                              bytes_of(*config_.kv_dtype, c.cached_numbers(parts)),
                     .step = on_it * step,
                     .ranks = on_it});
  }
  return found;
}

int64_t StepMemory::activations(int64_t tokens) {
  if (!config_.sp || config_.tp == 1 || tokens == 0) return 0;
  const auto [known, added] = planned_.try_emplace(tokens);
  if (added) {
    const std::unique_ptr<KernelCatalog> kernels = kernels_of_gpu(config_.device.first_gpu());
    const RunnerConfig ranks = runner_config(config_, cache_shape(config_, model_));
    known->second = kArenasPerPlan * prompt_step_bytes(model_, ranks, tokens, kernels.get());
  }
  return known->second;
}

void StepMemory::bound(SequenceParallel& sp, int64_t slots) {
  const DividedCache cache =
      divided_cache(rooms(activations(config_.prefill_chunk)),
                    divided_keys(model_.config(), *config_.kv_dtype, slots, config_.tp), kPageSize);
  sp.apart = cache.apart;
  sp.step_bytes = cache.step_bytes;
}

int64_t StepMemory::tokens_on_each(int64_t most) {
  int64_t tokens = most;
  for (const ContextRoom& room : rooms(activations(config_.prefill_chunk))) {
    tokens = std::min(tokens, context_that_fits(room, most, kPageSize));
  }
  return tokens;
}

int64_t StepMemory::tokens_on_all(int64_t most) {
  const int64_t tokens = tokens_on_each(most);
  return config_.sp ? std::min(most, tokens * config_.tp) : tokens;
}

int64_t StepMemory::step_of_prompt(int64_t context) {
  const int parts = config_.sp ? config_.tp : 1;  // of a step's tokens
  if (!config_.device.cuda) return std::min(context, kRankTokens * parts);
  const int64_t own = ceil_div(config_.sequences * context, int64_t{parts});
  int64_t room = std::numeric_limits<int64_t>::max();  // of each rank
  int64_t spare = room;                                // beside an unknown step's keys
  for (const ContextRoom& gpu : rooms(0)) {
    room = std::min(room, step_room(gpu, own) / gpu.ranks);
    spare = std::min(spare, gpu.total / 8);
  }
  if (parts == 1) {
    const int64_t fit = spare / (kArenasPerPlan * kTokenActivations);
    return std::min(context, std::clamp(fit, kLeastRankTokens, kRankTokens));
  }
  return divided_step(context, parts, static_cast<double>(room),
                      [&](int64_t tokens) { return static_cast<double>(activations(tokens)); });
}

}  // namespace braid
