#include "braid/tensor/view.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid {
namespace {

TEST(ViewTest, SlicesPointIntoTheSameMemory) {
  std::vector<std::byte> data(1 << 12);
  const TensorView w = make_view(data.data(), DType::q4_1, {6, 96});
  EXPECT_EQ(w.row_bytes, 60);
  const TensorView rows = slice_rows(w, 2, 5);
  EXPECT_EQ(rows.data, w.data + 120);
  EXPECT_EQ(rows.shape, Shape({3, 96}));
  EXPECT_TRUE(rows.contiguous());
  const TensorView cols = slice_cols(rows, 32, 96);
  EXPECT_EQ(cols.data, w.data + 120 + 20);
  EXPECT_EQ(cols.shape, Shape({3, 64}));
  EXPECT_FALSE(cols.contiguous());
  EXPECT_EQ(cols.row(1) - cols.row(0), 60);
}

TEST(ViewTest, ColumnsInsideABlockAreRefused) {
  std::vector<std::byte> data(1 << 12);
  const TensorView w = make_view(data.data(), DType::q4_1, {6, 96});
  EXPECT_THROW(slice_cols(w, 16, 96), std::logic_error);
  EXPECT_THROW(slice_rows(w, 3, 7), std::logic_error);
}

TEST(ViewTest, RowsOfAVectorAreItsElements) {
  std::vector<std::byte> data(64);
  const TensorView bias = make_view(data.data(), DType::f32, {16});
  const TensorView part = slice_rows(bias, 4, 12);
  EXPECT_EQ(part.data, data.data() + 16);
  EXPECT_EQ(part.shape, Shape({8}));
}

TEST(ShapeTest, PrintsAndCounts) {
  EXPECT_EQ(to_string(Shape({512, 9, 64})), "[512, 9, 64]");
  EXPECT_EQ(Shape({512, 9, 64}).rows(), 512 * 9);
  EXPECT_EQ(Shape({}).elems(), 1);
}

}  // namespace
}  // namespace braid
