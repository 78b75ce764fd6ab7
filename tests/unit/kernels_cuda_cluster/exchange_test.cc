// Sizes, pieces and traffic of exchanges, without a GPU.
#include "braid/kernels/cuda/cluster/exchange.h"

#include <gtest/gtest.h>

#include <bit>

namespace braid::cuda {
namespace {

constexpr ExchangeForm kForms[] = {ExchangeForm::direct, ExchangeForm::scatter, ExchangeForm::tree};

TEST(ExchangeSizes, AnInboxThatHoldsASumNeedsNoPieces) {
  for (const ExchangeForm form : kForms) {
    for (int ctas = 1; ctas <= kMaxCluster; ++ctas) {
      for (const int64_t elems : {1, 4, 5, 64, 1000, 16384}) {
        const ExchangeDesc desc{ExchangeKind::reduce, ctas, 4 * elems};
        const int64_t bytes = exchange_inbox_bytes(desc, form);
        EXPECT_GE(exchange_piece(form, ctas, static_cast<int>(bytes)), elems)
            << to_string(desc) << ", " << to_string(form);
      }
    }
  }
}

// Messages of a piece end within the inbox: worked out here by rounds.
TEST(ExchangeSizes, PiecesFit) {
  for (int ctas = 2; ctas <= kMaxCluster; ++ctas) {
    for (const int inbox : {256, 1024, 5008, 32768}) {
      for (const ExchangeForm form : kForms) {
        const int64_t quads = exchange_piece(form, ctas, inbox) / kExchangeQuad;
        if (quads == 0) continue;
        const int64_t part = (quads + ctas - 1) / ctas;
        const int64_t used = form == ExchangeForm::direct ? ctas * quads
                             : form == ExchangeForm::tree ? exchange_rounds(form, ctas) * quads
                                                          : ctas * part + quads;
        EXPECT_LE(16 * used, inbox) << ctas << " CTAs, " << to_string(form);
      }
    }
  }
}

TEST(ExchangeTraffic, OfPowersOfTwoIsThePapers) {
  for (const int ctas : {2, 4, 8, 16}) {
    const int64_t size = 1024;
    const int64_t rounds = std::bit_width(static_cast<unsigned>(ctas)) - 1;
    const ExchangeDesc reduce{ExchangeKind::reduce, ctas, size};
    const ExchangeDesc gather{ExchangeKind::gather, ctas, size};
    EXPECT_EQ(exchange_traffic(reduce, ExchangeForm::tree), size * rounds * ctas);
    EXPECT_EQ(exchange_traffic(gather, ExchangeForm::tree), size * (ctas - 1) * ctas);
    EXPECT_EQ(exchange_traffic(gather, ExchangeForm::direct), size * (ctas - 1) * ctas);
    EXPECT_EQ(exchange_traffic(reduce, ExchangeForm::scatter), 2 * size * (ctas - 1));
  }
}

// Of clusters that are no power of two: counted by hand.
TEST(ExchangeTraffic, OfOtherClusters) {
  EXPECT_EQ(exchange_traffic({ExchangeKind::reduce, 3, 16}, ExchangeForm::tree), (2 + 3) * 16);
  EXPECT_EQ(exchange_traffic({ExchangeKind::gather, 3, 16}, ExchangeForm::tree), 3 * 2 * 16);
  EXPECT_EQ(exchange_traffic({ExchangeKind::gather, 6, 16}, ExchangeForm::tree), 6 * 5 * 16);
  EXPECT_EQ(exchange_traffic({ExchangeKind::reduce, 6, 16}, ExchangeForm::tree), (6 + 4 + 6) * 16);
  EXPECT_EQ(exchange_traffic({ExchangeKind::reduce, 1, 16}, ExchangeForm::tree), 0);
}

// The measured points of docs/cluster-fusion.md: an H100's fastest form, rings full and not.
TEST(ExchangeChoice, IsTheMeasuredOne) {
  struct Point {
    int ctas;
    int64_t bytes;
    ExchangeForm best;
  };
  for (const Point& p : {Point{2, 2048, ExchangeForm::direct},
                         {2, 16384, ExchangeForm::direct},
                         {2, 65536, ExchangeForm::tree},
                         {3, 8192, ExchangeForm::direct},
                         {4, 4096, ExchangeForm::direct},
                         {4, 8192, ExchangeForm::scatter},
                         {4, 65536, ExchangeForm::scatter},
                         {6, 2048, ExchangeForm::direct},
                         {6, 4096, ExchangeForm::scatter},
                         {8, 2048, ExchangeForm::direct},
                         {8, 4096, ExchangeForm::scatter},
                         {12, 1024, ExchangeForm::direct},
                         {12, 2048, ExchangeForm::scatter},
                         {16, 1024, ExchangeForm::direct},
                         {16, 4096, ExchangeForm::scatter}}) {
    const ExchangeDesc desc{ExchangeKind::reduce, p.ctas, p.bytes};
    EXPECT_EQ(choose_exchange(desc), p.best) << to_string(desc);
  }
  EXPECT_EQ(choose_exchange({ExchangeKind::gather, 16, 4096}), ExchangeForm::direct);
}

TEST(ExchangeNames, Read) {
  for (const ExchangeForm form : kForms) EXPECT_EQ(exchange_form(to_string(form)), form);
  EXPECT_FALSE(exchange_form("ring"));
  EXPECT_EQ(to_string(ExchangeDesc{ExchangeKind::gather, 4, 2048}),
            "gather of 2048 bytes over 4 CTAs");
}

}  // namespace
}  // namespace braid::cuda
