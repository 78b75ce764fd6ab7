#pragma once

#include <string>
#include <vector>

#include "braid/kernels/cuda/decode_choice/decode_form.h"
#include "braid/kernels/cuda/decode_choice/decode_rates.h"

// Choice of a form for a decode step of few tokens, by price; equal on all ranks with equal shares
// (docs/cluster-fusion.md). Pure host code.
namespace braid::cuda {

// A decode step of few tokens, as a rank computes the step.
struct DecodeStep {
  FusedShape block;  // per layer; `tokens` are the step's
  int layers = 0;
  int64_t ffn_bytes = 0;     // weights of a layer's gate, up and down
  int64_t down_bytes = 0;    // down's part
  int64_t head_bytes = 0;    // for the head
  int launches = 6;          // per layer, apart
  bool norms_apart = false;  // of these, norms are separate launches
  int64_t context = 0;       // keys of each token
  std::string no_relay;      // reason against a relay; empty: possible
  std::string no_fused;      // reason against fused blocks, beyond why_not_fused
};

struct DecodePrice {
  DecodeForm form;
  double bytes_seconds = 0;  // to read all bytes by all present CTAs
  double seam_seconds = 0;   // between launches or steps
  double exchange_seconds = 0;
  std::string why_not;  // reason against an impossible candidate
  double seconds() const { return bytes_seconds + seam_seconds + exchange_seconds; }
};

// Seconds of a relay's step with so many bytes, without their reading.
double relay_seam(int64_t bytes, const DecodeRates& rates);

// Seconds of a fused block alone, with its seam: to read all bytes, and for exchanges.
struct BlockPrice {
  double bytes_seconds = 0;
  double exchange_seconds = 0;
};
BlockPrice block_price(const FusedShape& shape, const FusedConfig& config, int64_t context,
                       const DecodeRates& rates);

// All candidates: possible candidates first, the fastest ahead. Each fitting size of cluster is a
// candidate, with both scopes and splits, on chip and through memory; also with `parts`
// clusters for each KV head, and with as many clusters as run at once.
std::vector<DecodePrice> decode_prices(const DecodeStep& step, const FusedDevice& device,
                                       const DecodeRates& rates, int parts = 1);

// Keys of each token in four buckets of contexts. A plan is replayed while contexts grow: a form is
// chosen for all buckets at once, and prices of the usual bucket pick a cluster.
constexpr int64_t kContextBuckets[] = {1024, 4096, 16384, 65536};
constexpr int64_t kUsualContext = kContextBuckets[1];

// Least gain over a relay, or without a relay over launches apart, for which `auto` takes another
// form, in the usual bucket; no bucket may lose. `auto` never takes blocks of the kernel of several
// tokens: in whole models these lose to launches apart (docs/log/cluster-fusion.md).
constexpr double kDecodeGain = .03;

// The form of the step under `form`, whatever `step.context` is: on a GPU without constants of its
// own `auto` keeps a relay, or launches apart; a forced form stays, with the fastest cluster unless
// named. Fails with kUnsupported and the reason if a forced form is not possible.
DecodeForm choose_decode(const DecodeForm& form, const DecodeStep& step, const FusedDevice& device,
                         const DecodeRates& rates);

// Lines for --explain: the choice, then each candidate with its parts or the reason against it.
std::vector<std::string> explain_decode(const DecodeForm& chosen, const DecodeStep& step,
                                        const FusedDevice& device, const DecodeRates& rates);

}  // namespace braid::cuda
