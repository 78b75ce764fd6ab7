#include "braid/engine/kv_dtype.h"

#include <gmock/gmock.h>

#include "braid/base/error.h"

namespace braid {
namespace {

TEST(KvDtype, IsWhatWasAskedForElseWhatTheModelOrTheDeviceIsMadeFor) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    EXPECT_EQ(choose_kv_dtype({}, dtype, false, false), dtype);
    EXPECT_EQ(choose_kv_dtype({}, dtype, false, true), dtype);
    EXPECT_EQ(choose_kv_dtype({}, dtype, true, false), DType::bf16);
    EXPECT_EQ(choose_kv_dtype({}, dtype, true, true), DType::bf16);
    for (const bool cuda : {false, true}) {
      EXPECT_EQ(choose_kv_dtype(dtype, DType::f16, cuda, false), dtype);
    }
    EXPECT_EQ(choose_kv_dtype(dtype, DType::f16, false, true), dtype);
  }
}

TEST(KvDtype, WhatIsNotTakenIsRefusedByName) {
  const auto refusal = [](DType asked, bool cuda, bool divides) -> std::string {
    try {
      choose_kv_dtype(asked, DType::f16, cuda, divides);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(refusal(DType::q8_0, false, false), testing::HasSubstr("q8_0"));
  EXPECT_THAT(refusal(DType::i32, true, false), testing::HasSubstr("i32"));
  EXPECT_THAT(refusal(DType::f16, true, true), testing::HasSubstr("f16"));
  EXPECT_THAT(refusal(DType::f32, true, true), testing::HasSubstr("f32"));
}

}  // namespace
}  // namespace braid
