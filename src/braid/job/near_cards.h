#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace braid::job {

// An RDMA card, and its path through the machine's PCIe bridges.
struct Card {
  std::string name;             // "mlx5_0"
  std::filesystem::path place;  // "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"
};

std::vector<Card> rdma_cards(const std::filesystem::path& sys = "/sys");
// The path of the device "0000:1b:00.0"; empty where the system has none of that name.
std::filesystem::path pci_place(const std::string& pci, const std::filesystem::path& sys = "/sys");

// What is wrong with the card that carries a GPU's bytes, by UCX's `transport`
// ("rc_mlx5/mlx5_0:1"): another card is nearer, or none is near. Empty: nothing, or no card carries
// them.
std::string far_card(const std::filesystem::path& gpu, std::string_view transport,
                     const std::vector<Card>& cards);

}  // namespace braid::job
