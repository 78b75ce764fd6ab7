#include "braid/trace_engine_steps.h"

namespace braid::app {

PlannedTimes profile_times(const Engine& engine, const std::string& profile) {
  const Model& model = engine.loaded().model;
  CacheShape cache = cache_shape(engine.config(), model);
  cache.pages = engine.limits().pages;
  cache.pages_per_sequence = ceil_div(engine.limits().max_context, cache.page_size);
  RunnerConfig config = runner_config(engine.config(), cache);
  config.profile = load_profile(profile);
  return PlannedTimes(model, config, engine.limits());
}

void warm_up(Engine& engine) {
  const int64_t own = engine.limits().own_prompt;
  for (const int64_t tokens : {int64_t{64}, 2 * own, 16 * own}) {
    if (tokens == 0 || tokens + 64 > engine.limits().room()) continue;
    engine.generate({.prompt = std::vector<int32_t>(static_cast<size_t>(tokens), 1),
                     .max_tokens = 4,
                     .ignore_eos = true});
  }
}

}  // namespace braid::app
