#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/engine/approximation.h"
#include "braid/engine/prompt_candidate.h"
#include "braid/engine/thinning.h"

namespace braid {

// A prompt to divide, on devices that may be absent.
struct PromptRequest {
  std::string model;             // path of a model, or
  std::string config;            // of a config.json in Hugging Face's form: bf16 weights
  std::string profile = "h200";  // of the device: a name or a .json file
  std::string machines = "1x8";  // [RACKSx]MACHINESxDEVICES that are free
  int64_t tokens = 32768;        // of the prompt
  int64_t cached = 0;            // earlier tokens with present keys
  double memory_gb = 80;         // that a device has for weights, keys and activations
  Thinning thinning;             // of the prompt; levels are over all devices, or a device's own
};

// All candidates, and choose_candidate's choice. Pure: equal requests give equal
// plans.
struct PromptPlan {
  std::vector<PromptCandidate> candidates;  // by ranks, then by division
  size_t chosen = 0;
  size_t decodes = 0;               // the candidate whose ranks make a lone answer's token soonest
  std::optional<KeyLevels> levels;  // of all candidates

  const PromptCandidate& taken() const { return candidates[chosen]; }
  const PromptCandidate& decodes_fastest() const { return candidates[decodes]; }
  // Of a candidate; none if the prompt's attention leaves nothing out.
  std::optional<Approximation> approximation(const PromptCandidate& candidate) const;
};

// Plans and simulates each candidate, in the largest steps that fit (rank_tokens_that_fit): a
// single rank, and the other parts_of the machines; weights divided, and tokens divided by every
// mode with its rule of degrees, or by a ring alone where ranks do not divide a machine. A refused
// candidate has the time of steps of kRankTokens, and the bytes of kLeastRankTokens. With thinning
// every candidate leaves out the same parts' keys, and tokens divide by rings alone, over numbers
// of ranks that divide the levels'. Costs about a second for eight ranks, some seconds over
// machines. Fails with kInvalidArgument, naming the option, on a malformed request; with
// kUnsupported if the model refuses every candidate; with kResource if nothing fits, naming the
// needed memory and the longest prompt that fits, in whole pages.
PromptPlan plan_prompt(const PromptRequest& request);

// Elements that all ranks send in a layer, by formula (docs/long-prompts.md): a check of simulated
// counts. L tokens, N ranks, model width C, query and KV columns dq and dkv.
double weights_elements(double L, double C, int N);  // two sums of [L, C]
double ring_elements(double L, double dkv, int N);   // keys and values go round
// Heads are exchanged. More ranks than KV heads: N / kv_heads ranks get a head's keys.
double heads_elements(double L, double dq, double dkv, int kv_heads, int N);

}  // namespace braid
