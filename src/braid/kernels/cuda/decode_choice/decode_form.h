#pragma once

#include <string>
#include <string_view>

#include "braid/kernels/cuda/fused_attention/fused_config.h"

// Fusion of a decode step's launches, by the name in `--decode`. Pure host code.
namespace braid::cuda {

enum class DecodeKind { automatic, apart, relay, fused };

// automatic: the cheapest form. apart: each op is a launch. relay: a one-token step's layers are a
// single launch. fused: for few tokens, norm, q k v, rope, cache and attention are a single launch.
struct DecodeForm {
  DecodeKind kind = DecodeKind::automatic;
  int cluster = 0;  // CTAs that exchange on chip; 0: by price
  int parts = 1;    // clusters of a KV head
  FusedSplit split = FusedSplit::token;
  FusedScope scope = FusedScope::qkv;
  ExchangePath path = ExchangePath::chip;
  bool operator==(const DecodeForm&) const = default;
};

// "auto", "apart", "relay", "fused",
// "fused:cluster=4,parts=2,split=token,scope=projected,exchange=memory". Fails with
// kInvalidArgument, naming the wrong part and the allowed values.
DecodeForm parse_decode(std::string_view text);
std::string to_string(const DecodeForm& form);

}  // namespace braid::cuda
