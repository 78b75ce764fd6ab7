#pragma once

#include <string>
#include <vector>

#include "braid/kernels/cuda/decode_choice/decode_form.h"

// Which form a decode step of one token takes, by price: the same on all ranks that compute alike
// (docs/cluster-fusion.md). Pure host code.
namespace braid::cuda {

// A decode step of one token, as one rank computes it.
struct DecodeStep {
  FusedShape block;  // of each layer; `tokens` are the step's
  int layers = 0;
  int64_t ffn_bytes = 0;   // weights of a layer's gate, up and down
  int64_t down_bytes = 0;  // of these, down's
  int64_t head_bytes = 0;  // of the head
  int launches = 6;        // of a layer, apart
  int64_t context = 0;     // keys
  std::string no_relay;    // why a relay does not take it; empty: it does
  std::string no_fused;    // likewise of fused blocks, beyond why_not_fused
};

// What a GPU does: seconds and bytes, fitted to measurements (docs/cluster-fusion.md).
struct DecodeRates {
  double stream = 0;        // bytes a second that all SMs read
  double ring_bytes = 0;    // of all SMs together
  double relay_seam = 0;    // between two steps of a relay
  double relay_bare = 0;    // beyond that, behind a step without bytes to cover it
  double launch_seam = 0;   // between two launches
  double fused_seam = 0;    // of a fused block, a cluster of no CTAs
  double fused_cta = 0;     // for each CTA of its clusters
  double words_seam = 0;    // of attention's result on its way to the projection
  double memory_share = 0;  // of a block's seam, that exchanges through memory add
  double cta_stream = 0;    // bytes a second that one CTA reads of weights
  double cta_keys[3] = {};  // likewise of keys, with 1, 2 and 4 query heads
};

// Of an H100. Other GPUs with clusters read at their own speed, and seams are taken for the same.
DecodeRates decode_rates(double stream);

struct DecodePrice {
  DecodeForm form;
  double bytes_seconds = 0;  // to read what there is by the CTAs that there are
  double seam_seconds = 0;   // between launches or steps
  double exchange_seconds = 0;
  std::string why_not;  // of a candidate that is not possible: the reason
  double seconds() const { return bytes_seconds + seam_seconds + exchange_seconds; }
};

// All candidates: possible ones first, the fastest ahead. Each size of cluster that fits is one,
// with both scopes, on chip and through memory.
std::vector<DecodePrice> decode_prices(const DecodeStep& step, const FusedDevice& device,
                                       const DecodeRates& rates);

// Another form than a relay, or where there is none than launches apart, gains so much at least
// before `auto` takes it.
constexpr double kDecodeGain = .03;

// What `form` becomes for the step: itself where it is forced, with the fastest cluster where it
// names none. Fails with kUnsupported, giving the reason, where a forced form is not possible.
DecodeForm choose_decode(const DecodeForm& form, const DecodeStep& step, const FusedDevice& device,
                         const DecodeRates& rates);

// Lines of --explain: what was chosen, then each candidate with its parts or why it is none.
std::vector<std::string> explain_decode(const DecodeForm& chosen, const DecodeStep& step,
                                        const FusedDevice& device, const DecodeRates& rates);

}  // namespace braid::cuda
