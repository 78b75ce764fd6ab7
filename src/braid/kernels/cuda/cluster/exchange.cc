#include "braid/kernels/cuda/cluster/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// Messages of a tree over `ctas` CTAs: in each round a CTA gets the neighbouring group's data.
struct TreeCount {
  int64_t messages = 0;
  int64_t parts = 0;  // CTAs whose values are in the messages
};
TreeCount tree_count(int ctas) {
  TreeCount count;
  for (int stride = 1; stride < ctas; stride *= 2) {
    for (int rank = 0; rank < ctas; ++rank) {
      const int other = ((rank / stride) ^ 1) * stride;
      if (other >= ctas) continue;
      ++count.messages;
      count.parts += std::min(stride, ctas - other);
    }
  }
  return count;
}

}  // namespace

int64_t exchange_inbox_bytes(const ExchangeDesc& d, ExchangeForm form) {
  const int64_t bytes = round_up(d.bytes, 16);
  if (d.kind == ExchangeKind::gather || form == ExchangeForm::direct) return d.ctas * bytes;
  if (form == ExchangeForm::tree) return std::max(1, exchange_rounds(form, d.ctas)) * bytes;
  return 2 * bytes + int64_t{16} * (d.ctas + 1);
}

int64_t exchange_traffic(const ExchangeDesc& d, ExchangeForm form) {
  const int64_t n = d.ctas;
  const TreeCount tree = tree_count(d.ctas);
  if (d.kind == ExchangeKind::gather) {
    // Each CTA needs every other's bytes once, in any form.
    return (form == ExchangeForm::tree ? tree.parts : n * (n - 1)) * d.bytes;
  }
  if (form == ExchangeForm::direct) return n * (n - 1) * d.bytes;
  if (form == ExchangeForm::tree) return tree.messages * d.bytes;
  return 2 * (n - 1) * d.bytes;
}

ExchangeForm choose_exchange(const ExchangeDesc& d) {
  constexpr int64_t kDirectBytes = 16 << 10;  // per CTA; up to here a single round is fastest
  if (d.kind == ExchangeKind::gather || d.bytes * (d.ctas - 1) <= kDirectBytes) {
    return ExchangeForm::direct;
  }
  return d.ctas == 2 ? ExchangeForm::tree : ExchangeForm::scatter;
}

std::string_view to_string(ExchangeForm form) {
  return form == ExchangeForm::direct    ? "direct"
         : form == ExchangeForm::scatter ? "scatter"
                                         : "tree";
}

std::string_view to_string(ExchangePath path) {
  return path == ExchangePath::chip ? "chip" : "memory";
}

std::string to_string(const ExchangeDesc& d) {
  return fmt::format("{} of {} bytes over {} CTAs",
                     d.kind == ExchangeKind::reduce ? "reduce" : "gather", d.bytes, d.ctas);
}

std::optional<ExchangeForm> exchange_form(std::string_view name) {
  for (const auto form : {ExchangeForm::direct, ExchangeForm::scatter, ExchangeForm::tree}) {
    if (name == to_string(form)) return form;
  }
  return {};
}

}  // namespace braid::cuda
