#include "braid/job/near_cards.h"

#include <gtest/gtest.h>

#include "unit/io/temp_folder.h"

namespace braid::job {
namespace {

namespace fs = std::filesystem;

// A machine of two PCIe roots, as the kernel shows it: a GPU and a card behind one switch, another
// card at the same root, a third one at the other root.
class NearCards : public testing::Test {
 protected:
  void SetUp() override {
    device("pci0000:16/0000:16:01.0/0000:17:00.0/0000:1b:00.0", "");
    device("pci0000:16/0000:16:01.0/0000:17:00.0/0000:1c:00.0", "mlx5_0");
    device("pci0000:16/0000:16:03.0/0000:20:00.0", "mlx5_1");
    device("pci0000:b1/0000:b1:01.0/0000:b5:00.0", "mlx5_2");
    device("pci0000:d0/0000:d0:01.0/0000:d5:00.0", "");
  }
  void device(const fs::path& place, const std::string& card) const {
    const fs::path at = sys() / "devices" / place;
    fs::create_directories(at);
    fs::create_directories(sys() / "bus/pci/devices");
    fs::create_symlink(at, sys() / "bus/pci/devices" / place.filename());
    if (card.empty()) return;
    fs::create_directories(sys() / "class/infiniband" / card);
    fs::create_symlink(at, sys() / "class/infiniband" / card / "device");
  }
  fs::path sys() const { return folder_.path(); }
  std::string said(const std::string& gpu, const std::string& transport) const {
    return far_card(pci_place(gpu, sys()), transport, rdma_cards(sys()));
  }

  const test::TempFolder folder_;
};

TEST_F(NearCards, AreFoundWithTheirPlaces) {
  const std::vector<Card> cards = rdma_cards(sys());
  ASSERT_EQ(cards.size(), 3u);
  EXPECT_EQ(cards[1].name, "mlx5_1");
  EXPECT_EQ(cards[1].place.filename(), "0000:20:00.0");
  EXPECT_EQ(pci_place("0000:ff:00.0", sys()), "");
  EXPECT_TRUE(rdma_cards(sys() / "nowhere").empty());
}

TEST_F(NearCards, AFarCardIsNamedWithTheNearerOne) {
  EXPECT_EQ(said("0000:1b:00.0", "rc_mlx5/mlx5_0:1"), "");
  EXPECT_EQ(said("0000:1b:00.0", "rc_mlx5/mlx5_2:1"),
            "far from mlx5_2, the card that carries its bytes: mlx5_0 is nearer: "
            "UCX_NET_DEVICES=mlx5_0:1");
  EXPECT_EQ(said("0000:1b:00.0", "rc_mlx5/mlx5_1:1"),
            "far from mlx5_1, the card that carries its bytes: mlx5_0 is nearer: "
            "UCX_NET_DEVICES=mlx5_0:1");
  EXPECT_EQ(said("0000:1b:00.0", "rc_mlx5/mlx5_0:1 + rc_mlx5/mlx5_2:1"), "");
}

TEST_F(NearCards, AGpuWithoutANearCardIsSaid) {
  EXPECT_EQ(said("0000:d5:00.0", "rc_mlx5/mlx5_1:1"),
            "far from mlx5_1, the card that carries its bytes: no RDMA card is at its PCIe root");
}

TEST_F(NearCards, WithoutACardThatCarriesBytesNothingIsSaid) {
  for (const char* transport : {"tcp/eth0", "sysv", "rc_mlx5/mlx5_9:1", ""}) {
    EXPECT_EQ(said("0000:1b:00.0", transport), "");
  }
  EXPECT_EQ(said("0000:ff:00.0", "rc_mlx5/mlx5_2:1"), "");
}

}  // namespace
}  // namespace braid::job
