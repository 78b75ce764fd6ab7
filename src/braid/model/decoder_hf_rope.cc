#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "braid/io/quoted.h"
#include "braid/model/config_keys.h"
#include "braid/model/decoder.h"

namespace braid::decoder {
namespace {

using nlohmann::json;

std::optional<JsonObject> filled_object(const JsonObject& config, std::string_view key) {
  auto object = config.object(key);
  return object && !object->value().empty() ? object : std::nullopt;
}

// RoPE's parameters in a single object: a non-empty rope_scaling, otherwise rope_parameters, with
// the keys that older files have beside both.
json merged(const JsonObject& config, const TableReader& keys, std::vector<std::string>& remarks) {
  const auto scaling = filled_object(config, "rope_scaling");
  const auto parameters = filled_object(config, "rope_parameters");
  json rope = scaling ? scaling->value() : parameters ? parameters->value() : json::object();
  for (const auto& [key, value] : rope.items()) {
    if (!value.is_object()) continue;
    fail(ErrorCode::kUnsupported, "config.json: RoPE for '{}' layers alone is not supported", key);
  }
  if (!rope.contains("rope_theta")) rope["rope_theta"] = keys.get<double>("rope_theta");
  if (const auto original = keys.find<int64_t>("original_max_position_embeddings")) {
    rope["original_max_position_embeddings"] = *original;
  }
  const auto partial = config.find<double>("partial_rotary_factor");
  if (partial && !rope.contains("partial_rotary_factor")) rope["partial_rotary_factor"] = *partial;
  if (scaling && parameters &&
      parameters->value().value("rope_theta", rope["rope_theta"]) != rope["rope_theta"]) {
    remarks.push_back(fmt::format(
        "config.json: rope_scaling stands for all of rope_parameters, as in transformers: "
        "rope_theta is {}, not {}",
        rope["rope_theta"].dump(), parameters->value()["rope_theta"].dump()));
  }
  return rope;
}

std::string rope_type(const JsonObject& rope) {
  std::string type = rope.get_or<std::string>("type", "default");
  if (rope.value().contains("rope_type")) type = rope.get<std::string>("rope_type");
  for (const std::string_view known : hf_rope_keys().columns) {
    if (type == known) return type;
  }
  fail(ErrorCode::kUnsupported, "config.json: RoPE scaling {} is not supported (known: {})",
       braid::quoted(type), fmt::join(hf_rope_keys().columns, ", "));
}

// How much YaRN lengthens sin and cos (its paper, equation 22).
double lengthened(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double yarn_attention_factor(const TableReader& keys, double factor) {
  if (const auto given = keys.find<double>("attention_factor")) return *given;
  const auto mscale = keys.find<double>("mscale"), all = keys.find<double>("mscale_all_dim");
  if (mscale.value_or(0) == 0 || all.value_or(0) == 0) return lengthened(factor, 1);
  return lengthened(factor, *mscale) / lengthened(factor, *all);
}

void read_yarn(const TableReader& keys, int64_t context, ops::RopeAttrs& rope) {
  const auto number_or = [&](std::string_view key, double otherwise) {
    const double value = keys.find<double>(key).value_or(0);
    return static_cast<float>(value == 0 ? otherwise : value);
  };
  const double factor = keys.find<double>("factor").value_or(
      static_cast<double>(context) / static_cast<double>(rope.original_context));
  rope.factor = static_cast<float>(factor);
  rope.beta_fast = number_or("beta_fast", 32);
  rope.beta_slow = number_or("beta_slow", 1);
  rope.truncate = keys.find<bool>("truncate").value_or(false);
  rope.attention_factor = static_cast<float>(yarn_attention_factor(keys, factor));
}

}  // namespace

ops::RopeAttrs hf_rope(const JsonObject& config, const TableReader& keys, ModelConfig& c) {
  const JsonObject object("config.json: rope_parameters", merged(config, keys, c.remarks));
  const std::string type = rope_type(object);
  const TableReader rope_keys(object, "config.json: rope_parameters", hf_rope_keys(), type);
  ops::RopeAttrs rope{.head_dim = c.D, .rotary_dim = c.D, .pairing = ops::RopePairing::half};
  if (c.latent) {
    rope.head_dim = rope.rotary_dim = c.latent->Dr;
    const bool pairs = keys.find<bool>("rope_interleave").value_or(true);
    rope.pairing = pairs ? ops::RopePairing::interleaved : ops::RopePairing::half;
  }
  rope.theta = static_cast<float>(rope_keys.get<double>("rope_theta"));
  if (type == "dynamic") c.dynamic_rope = rope_keys.get<double>("factor");  // Model::stretch
  if (type == "default" || type == "dynamic") return rope;
  const auto original = rope_keys.find<int64_t>("original_max_position_embeddings");
  if (!original && c.latent && type == "yarn") {
    fail(ErrorCode::kMalformed,
         "config.json: rope_parameters: original_max_position_embeddings is missing: latent "
         "attention with YaRN wants it, since max_position_embeddings, {}, may be lengthened",
         c.context);
  }
  rope.original_context = original.value_or(c.context);
  if (type == "linear") {
    rope.scaling = ops::RopeScaling::linear;
    rope.factor = static_cast<float>(rope_keys.get<double>("factor"));
  } else if (type == "llama3") {
    rope.scaling = ops::RopeScaling::llama3;
    rope.factor = static_cast<float>(rope_keys.get<double>("factor"));
    rope.low_freq_factor = static_cast<float>(rope_keys.get<double>("low_freq_factor"));
    rope.high_freq_factor = static_cast<float>(rope_keys.get<double>("high_freq_factor"));
  } else {
    rope.scaling = ops::RopeScaling::yarn;
    read_yarn(rope_keys, c.context, rope);
    // The whole logit is scaled, not its rotated part alone.
    const double all = rope_keys.find<double>("mscale_all_dim").value_or(0);
    if (c.latent && all != 0) {
      c.latent->logit_scale = static_cast<float>(std::pow(lengthened(rope.factor, all), 2));
    }
  }
  return rope;
}

}  // namespace braid::decoder
