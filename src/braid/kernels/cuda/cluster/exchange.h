#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "braid/kernels/cuda/host_device.h"

// Exchanges among the N CTAs of a cluster: sizes, traffic and choice, as pure data
// (docs/cluster-fusion.md; device/exchange.cuh has the kernels' side).
namespace braid::cuda {

constexpr int kMaxCluster = 16;     // CTAs
constexpr int kExchangeRounds = 4;  // for a tree of kMaxCluster CTAs
constexpr int kExchangeTurns = 2;   // buffers; why two are enough: docs/cluster-fusion.md
constexpr int kExchangeQuad = 4;    // elements per thread

// direct: each CTA sends its data to all others, in a single round.
// scatter: each CTA adds up a part of the elements and sends the sum to all others, two rounds.
// tree: groups of 1, 2, 4, 8 CTAs exchange the group's data, ceil(log2 N) rounds.
enum class ExchangeForm { direct, scatter, tree };

// On chip, through shared memory of the cluster, or through tagged words in device memory.
enum class ExchangePath { chip, memory };

enum class ExchangeKind { reduce, gather };

// An exchange: each CTA brings `bytes`, 4 for each element of a sum.
struct ExchangeDesc {
  ExchangeKind kind = ExchangeKind::reduce;
  int ctas = 1;
  int64_t bytes = 0;
  bool operator==(const ExchangeDesc&) const = default;
};

BRAID_HOST_DEVICE constexpr int exchange_rounds(ExchangeForm form, int ctas) {
  if (ctas == 1) return 0;
  if (form == ExchangeForm::direct) return 1;
  if (form == ExchangeForm::scatter) return 2;
  return ctas <= 2 ? 1 : ctas <= 4 ? 2 : ctas <= 8 ? 3 : 4;
}

// The longest sum, in elements (f32, a multiple of kExchangeQuad), whose messages fit
// `inbox_bytes`. Longer sums go in pieces. 0: none.
BRAID_HOST_DEVICE constexpr int exchange_piece(ExchangeForm form, int ctas, int inbox_bytes) {
  const int quads = inbox_bytes / (4 * kExchangeQuad);
  if (form == ExchangeForm::direct) return quads / ctas * kExchangeQuad;
  if (form == ExchangeForm::tree) {
    const int rounds = exchange_rounds(form, ctas);
    return quads / (rounds > 0 ? rounds : 1) * kExchangeQuad;
  }
  // Parts of all CTAs, each rounded up to a quad, and sums of all elements.
  return quads > ctas ? (quads - ctas) / 2 * kExchangeQuad : 0;
}

// Bytes per inbox, of two, that an exchange needs to avoid pieces; a gather never goes in
// pieces.
int64_t exchange_inbox_bytes(const ExchangeDesc& desc, ExchangeForm form);

// Device memory of a cluster's words, for exchanges through memory. Zeros at first.
BRAID_HOST_DEVICE constexpr int64_t exchange_mail_bytes(int ctas, int64_t inbox_bytes) {
  return int64_t{2} * kExchangeTurns * kExchangeRounds * ctas * inbox_bytes;
}

// Bytes that all CTAs together send over the network between SMs.
int64_t exchange_traffic(const ExchangeDesc& desc, ExchangeForm form);

// The fastest form on chip, by measured points (docs/cluster-fusion.md).
ExchangeForm choose_exchange(const ExchangeDesc& desc);

std::string_view to_string(ExchangeForm form);
std::string_view to_string(ExchangePath path);
std::string to_string(const ExchangeDesc& desc);  // "reduce of 2048 bytes over 4 CTAs"
std::optional<ExchangeForm> exchange_form(std::string_view name);

}  // namespace braid::cuda
