#include "braid/engine/sampling_defaults.h"

#include <optional>
#include <variant>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr float kChatTemperature = 0.7f;

struct Recommended {
  std::optional<bool> sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};

Recommended recommended(const HfFolder& folder) {
  const JsonObject& config = folder.generation_config();
  return {.sample = config.find<bool>("do_sample"),
          .temperature = config.find<double>("temperature"),
          .top_p = config.find<double>("top_p"),
          .min_p = config.find<double>("min_p"),
          .repetition_penalty = config.find<double>("repetition_penalty"),
          .top_k = config.find<int64_t>("top_k")};
}

Recommended recommended(const GgufFile& file) {
  const GgufMetadata& data = file.metadata();
  return {.sample = {},
          .temperature = data.find<double>("general.sampling.temp"),
          .top_p = data.find<double>("general.sampling.top_p"),
          .min_p = data.find<double>("general.sampling.min_p"),
          .repetition_penalty = data.find<double>("general.sampling.penalty_repeat"),
          .top_k = data.find<int64_t>("general.sampling.top_k")};
}

// Takes a value over unless check() refuses it.
template <class Field, class T>
void take(SamplingParams& params, Field SamplingParams::*field, const std::optional<T>& value) {
  if (!value) return;
  SamplingParams changed = params;
  changed.*field = static_cast<Field>(*value);
  try {
    check(changed);
  } catch (const Error&) {
    return;
  }
  params = changed;
}

}  // namespace

SamplingParams default_sampling(const ModelFile& file, bool chat) {
  const Recommended r = std::visit([](const auto& f) { return recommended(f); }, file);
  SamplingParams params;
  if (r.sample == false) {  // as transformers, which then reads no temperature
    take(params, &SamplingParams::repetition_penalty, r.repetition_penalty);
    return params;
  }
  const bool sampled = r.sample == true || r.temperature || r.top_p || r.top_k || r.min_p;
  if (chat) params.temperature = kChatTemperature;
  if (sampled && !r.temperature) params.temperature = 1;
  take(params, &SamplingParams::temperature, r.temperature);
  take(params, &SamplingParams::top_k, r.top_k);
  take(params, &SamplingParams::top_p, r.top_p);
  take(params, &SamplingParams::min_p, r.min_p);
  take(params, &SamplingParams::repetition_penalty, r.repetition_penalty);
  return params;
}

}  // namespace braid
