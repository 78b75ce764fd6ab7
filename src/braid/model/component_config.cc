#include "braid/model/component_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

// Fields that transformers writes for any model: names, training, and the making of text.
constexpr std::string_view kTransformersNotes[] = {"add_cross_attention",
                                                   "architectures",
                                                   "bad_words_ids",
                                                   "begin_suppress_tokens",
                                                   "bos_token_id",
                                                   "chunk_size_feed_forward",
                                                   "cross_attention_hidden_size",
                                                   "decoder_start_token_id",
                                                   "diversity_penalty",
                                                   "do_sample",
                                                   "dtype",
                                                   "early_stopping",
                                                   "encoder_no_repeat_ngram_size",
                                                   "eos_token_id",
                                                   "exponential_decay_length_penalty",
                                                   "finetuning_task",
                                                   "forced_bos_token_id",
                                                   "forced_eos_token_id",
                                                   "gradient_checkpointing",
                                                   "id2label",
                                                   "initializer_factor",
                                                   "initializer_range",
                                                   "is_encoder_decoder",
                                                   "label2id",
                                                   "length_penalty",
                                                   "max_length",
                                                   "min_length",
                                                   "no_repeat_ngram_size",
                                                   "num_beam_groups",
                                                   "num_beams",
                                                   "num_return_sequences",
                                                   "output_attentions",
                                                   "output_hidden_states",
                                                   "output_past",
                                                   "output_scores",
                                                   "pad_token_id",
                                                   "prefix",
                                                   "problem_type",
                                                   "pruned_heads",
                                                   "remove_invalid_values",
                                                   "repetition_penalty",
                                                   "return_dict",
                                                   "return_dict_in_generate",
                                                   "sep_token_id",
                                                   "suppress_tokens",
                                                   "task_specific_params",
                                                   "temperature",
                                                   "tf_legacy_loss",
                                                   "tie_encoder_decoder",
                                                   "tie_word_embeddings",
                                                   "tokenizer_class",
                                                   "top_k",
                                                   "top_p",
                                                   "torch_dtype",
                                                   "torchscript",
                                                   "transformers_version",
                                                   "typical_p",
                                                   "use_bfloat16",
                                                   "use_cache"};

}  // namespace

int64_t read_count(const JsonObject& config, std::string_view component, std::string_view key,
                   int64_t otherwise) {
  const int64_t value = config.get_or<int64_t>(key, otherwise);
  constexpr int64_t kMost = 1 << 20;
  if (value < 1 || value > kMost) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}, wanted is 1 to {}", component, key, value, kMost);
  }
  return value;
}

float read_positive(const JsonObject& config, std::string_view component, std::string_view key,
                    float otherwise) {
  const auto value = config.get_or<double>(key, otherwise);
  if (!(value > 0)) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}, more than 0 is wanted", component, key, value);
  }
  return static_cast<float>(value);
}

void require_text(const JsonObject& config, std::string_view component, std::string_view key,
                  std::initializer_list<std::string_view> known) {
  const auto value = config.find<std::string>(key);
  if (!value || std::ranges::count(known, *value) > 0) return;
  fail(ErrorCode::kUnsupported, "{}: {} is {}, which is not supported; known: {}", component, key,
       braid::quoted(*value), fmt::join(known, ", "));
}

void require_known_fields(const JsonObject& config, std::string_view component, ConfigWriter writer,
                          std::initializer_list<std::string_view> known) {
  for (const std::string& key : config.keys()) {
    if (key.starts_with('_') || !config.contains(key) || std::ranges::count(known, key) > 0) {
      continue;
    }
    if (writer == ConfigWriter::transformers &&
        std::ranges::count(kTransformersNotes, std::string_view(key)) > 0) {
      continue;
    }
    fail(ErrorCode::kUnsupported,
         "{}: the field {}, here {}, is not known and may change the result: wanted is a "
         "configuration without it",
         component, braid::quoted(key), braid::quoted(config.value().at(key).dump()));
  }
}

}  // namespace braid
