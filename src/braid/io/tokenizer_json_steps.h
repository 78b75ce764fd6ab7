#pragma once

#include <vector>

#include "braid/io/tokenizer_json_node.h"
#include "braid/io/tokenizer_spec.h"

namespace braid {

// The steps of a tokenizer.json around the model, each from the node of a field. All fail with
// kUnsupported on an unknown step, listing the known steps.
void read_normalizer(const JsonNode& node, std::vector<NormalizeStep>& steps);
void read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec);
// `fused`: a Fuse step came before, so the next step sees the text as a whole.
void read_decoder(const JsonNode& node, DecodeRule& rule, bool& fused);
// A whole tokenizer.json, parsed or made from other kinds of files; as tokenizer_from_json.
TokenizerSpec read_tokenizer(const nlohmann::json& document, std::string_view tokenizer_config_json,
                             std::string_view name);
// Returns true if a template says which tokens go around the text.
bool read_post_processor(const JsonNode& node, TokenizerSpec& spec);

}  // namespace braid
