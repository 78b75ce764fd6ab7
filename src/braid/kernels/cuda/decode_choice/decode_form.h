#pragma once

#include <string>
#include <string_view>

#include "braid/kernels/cuda/fused_attention/fused_config.h"

// How the launches of a decode step are fused: what `--decode` names. Pure host code.
namespace braid::cuda {

enum class DecodeKind { automatic, apart, relay, fused };

// automatic: what the price says. apart: each op its launch. relay: all layers of a step of one
// token as one launch. fused: norm, q k v, rope, cache and attention of one token as one launch.
struct DecodeForm {
  DecodeKind kind = DecodeKind::automatic;
  int cluster = 0;  // CTAs of a KV head; 0: what the price says
  FusedScope scope = FusedScope::qkv;
  ExchangePath path = ExchangePath::chip;
  bool operator==(const DecodeForm&) const = default;
};

// "auto", "apart", "relay", "fused", "fused:cluster=4,split=token,scope=projected,exchange=memory".
// Fails with kInvalidArgument, naming the part that is wrong and what is allowed.
DecodeForm parse_decode(std::string_view text);
std::string to_string(const DecodeForm& form);

}  // namespace braid::cuda
