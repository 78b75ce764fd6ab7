#include "braid/job/near_cards.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::job {
namespace {

namespace fs = std::filesystem;

using Steps = std::vector<std::string>;

// The steps that two places share, from the root of the machine on.
Steps shared_steps(const fs::path& a, const fs::path& b) {
  Steps steps;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end() && *x == *y; ++x, ++y) {
    steps.push_back(x->string());
  }
  return steps;
}

}  // namespace

std::vector<Card> rdma_cards(const fs::path& sys) {
  std::vector<Card> cards;
  std::error_code none;
  for (fs::directory_iterator it(sys / "class/infiniband", none), end; it != end;
       it.increment(none)) {
    cards.push_back({it->path().filename().string(), fs::canonical(it->path() / "device", none)});
  }
  std::ranges::sort(cards, {}, &Card::name);
  return cards;
}

fs::path pci_place(const std::string& pci, const fs::path& sys) {
  std::error_code none;
  return fs::canonical(sys / "bus/pci/devices" / pci, none);
}

std::string far_card(const fs::path& gpu, std::string_view transport,
                     const std::vector<Card>& cards) {
  const auto steps = [&](const Card& card) { return shared_steps(gpu, card.place).size(); };
  const Card *carries = nullptr, *nearest = nullptr;
  for (const Card& card : cards) {
    const bool used = transport.find("/" + card.name + ":") != std::string_view::npos;
    if (used && (carries == nullptr || steps(card) > steps(*carries))) carries = &card;
    if (nearest == nullptr || steps(card) > steps(*nearest)) nearest = &card;
  }
  if (gpu.empty() || carries == nullptr) return "";
  if (steps(*nearest) > steps(*carries)) {
    return fmt::format(
        "far from {}, the card that carries its bytes: {} is nearer: "
        "UCX_NET_DEVICES={}:1",
        carries->name, nearest->name, nearest->name);
  }
  const Steps shared = shared_steps(gpu, carries->place);
  const auto is_root = [](const std::string& step) { return step.starts_with("pci"); };
  if (std::ranges::any_of(shared, is_root)) return "";
  return fmt::format(
      "far from {}, the card that carries its bytes: no RDMA card is at its PCIe root",
      carries->name);
}

}  // namespace braid::job
