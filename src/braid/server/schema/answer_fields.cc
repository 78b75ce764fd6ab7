#include "braid/server/schema/answer_fields.h"

#include <algorithm>

namespace braid::server {
namespace {

// Fields shared by chat and completions.
const std::vector<Field>& answer_fields() {
  static const std::vector<Field> fields = {
      {.name = "model", .types = kString, .meaning = "the served model's name, or none"},
      {.name = "max_tokens",
       .types = kInteger,
       .meaning = "tokens of the answer at most",
       .otherwise = "until the context is full",
       .least = 0,
       .most = kMostTokens},
      {.name = "min_tokens",
       .types = kInteger,
       .meaning = "tokens before the answer may end by itself",
       .otherwise = "0",
       .least = 0,
       .most = kMostTokens},
      {.name = "temperature",
       .types = kNumber,
       .meaning = "0: the most likely token",
       .otherwise = "the model's, else 1",
       .least = 0,
       .most = 2},
      {.name = "top_p",
       .types = kNumber,
       .meaning = "choose among tokens that make up this probability, above 0",
       .otherwise = "the model's, else 1",
       .least = 1e-9,
       .most = 1},
      {.name = "top_k",
       .types = kInteger,
       .meaning = "choose among so many tokens; 0 and -1: all",
       .otherwise = "the model's, else 0",
       .least = -1,
       .most = kMostTokens},
      {.name = "min_p",
       .types = kNumber,
       .meaning = "drop tokens less likely than this share of the best",
       .otherwise = "0",
       .least = 0,
       .most = 1},
      {.name = "seed",
       .types = kInteger,
       .meaning = "the same seed gives the same text",
       .otherwise = "random"},
      {.name = "frequency_penalty",
       .types = kNumber,
       .meaning = "for each earlier occurrence in the answer",
       .otherwise = "0",
       .least = -2,
       .most = 2},
      {.name = "presence_penalty",
       .types = kNumber,
       .meaning = "for tokens that occurred in the answer",
       .otherwise = "0",
       .least = -2,
       .most = 2},
      {.name = "repetition_penalty",
       .types = kNumber,
       .meaning = "for tokens of prompt and answer; 1: none",
       .otherwise = "1",
       .least = 1e-3,
       .most = 100},
      {.name = "logit_bias",
       .types = kObject,
       .meaning = "token id (as text) to a bias from -100 to 100"},
      {.name = "n",
       .types = kInteger,
       .meaning = "answers to one prompt",
       .otherwise = "1",
       .least = 1,
       .most = 128},
      {.name = "stop",
       .types = kString | kArray,
       .meaning = "a text, or up to 16, that ends the answer",
       .schema = R"("items": {"type": "string", "minLength": 1}, "maxItems": 16, "minLength": 1)"},
      {.name = "stop_token_ids",
       .types = kArray,
       .meaning = "token ids that end the answer",
       .schema = kIdsSchema},
      {.name = "include_stop_str_in_output",
       .types = kBoolean,
       .meaning = "the stop text is part of the answer",
       .otherwise = "false"},
      {.name = "ignore_eos",
       .types = kBoolean,
       .meaning = "go on after an end-of-text token",
       .otherwise = "false"},
      {.name = "skip_special_tokens",
       .types = kBoolean,
       .meaning = "special tokens have no text",
       .otherwise = "true"},
      {.name = "stream",
       .types = kBoolean,
       .meaning = "send the answer as it is made, as server-sent events",
       .otherwise = "false"},
      {.name = "stream_options",
       .types = kObject,
       .meaning = "`include_usage`: a last chunk with the usage; `continuous_usage_stats`: usage "
                  "in every chunk"},
      {.name = "response_format",
       .types = kObject,
       .meaning = "`{\"type\": \"json_schema\", \"json_schema\": {\"schema\": ...}}`: the answer "
                  "is JSON that fulfils the schema; `json_object`: any object; `text`: anything"},
      {.name = "structured_outputs",
       .types = kObject,
       .meaning =
           "one of `json` (a schema), `regex`, `choice` (a list of texts), `grammar` (EBNF), "
           "`json_object` (true), which the whole answer follows"},
      {.name = "cache_salt",
       .types = kString,
       .meaning = "requests of different salts share no cached prompt"},
      accepted("user"),
      accepted("store"),
      accepted("metadata"),
      accepted("service_tier"),
      accepted("prompt_cache_key"),
      accepted("safety_identifier"),
      accepted("priority"),
      refused("audio", ""),
      refused("modalities", R"(["text"])"),
      refused("best_of", "1"),
      refused("prompt_logprobs", ""),
  };
  return fields;
}

}  // namespace

std::vector<Field> with_answer_fields(std::vector<Field> fields,
                                      std::vector<std::string_view> without) {
  for (const Field& field : answer_fields()) {
    if (std::ranges::find(without, field.name) == without.end()) fields.push_back(field);
  }
  return fields;
}

}  // namespace braid::server
