// Memory of a KV cache: what fits, and what is said where nothing does.
#include "braid/engine/requests/kv_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// A MiB a page, contexts of 8 pages, two sequences.
KvRoomRequest request() {
  return {.bytes_free = 100 * kMiB,
          .token_bytes = kMiB / 64,
          .page_size = 64,
          .context = 512,
          .sequences = 2};
}

std::string refusal(const KvRoomRequest& r) {
  try {
    kv_room(r);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    return error.what();
  }
  return "it fits";
}

TEST(KvRoom, TakesWhatAllSequencesCanNeedOrAQuarterOfWhatIsFree) {
  EXPECT_EQ(kv_room(request()).pages, 16);
  EXPECT_EQ(kv_room(request()).context, 512);
  KvRoomRequest r = request();
  r.bytes_free = 20 * kMiB;
  EXPECT_EQ(kv_room(r).pages, 5);
  EXPECT_EQ(kv_room(r).context, 320) << "as much as the pages hold";
  r.bytes_wanted = 9 * kMiB;
  EXPECT_EQ(kv_room(r).pages, 9);
}

TEST(KvRoom, SaysWhatEachPartTakesAndWhatFits) {
  KvRoomRequest r = request();
  r.context_named = true;
  r.bytes_free = 20 * kMiB;
  EXPECT_EQ(refusal(r),
            "the KV cache of a sequence of 512 tokens takes 8.0 MiB, 5.0 MiB is a quarter of the "
            "20.0 MiB that are free, which holds 320 tokens: pass --kv-memory SIZE or "
            "--max-model-len 320");
  r.bytes_wanted = 3 * kMiB;
  EXPECT_THAT(refusal(r), HasSubstr("3.0 MiB was asked for, which holds 192 tokens"));
  r.context_named = false;
  r.bytes_wanted = kMiB;
  EXPECT_THAT(refusal(r), HasSubstr("of 128 tokens takes 2.0 MiB, 1.0 MiB was asked for"));
  r.bytes_wanted = 2 * kMiB;
  EXPECT_EQ(refusal(r), "it fits");
}

TEST(KvRoom, ReadsSizes) {
  EXPECT_EQ(parse_size("auto"), 0);
  EXPECT_EQ(parse_size("512M"), 512 * kMiB);
  EXPECT_EQ(parse_size("1.5g"), 1536 * kMiB);
  EXPECT_EQ(parse_size("4 GiB"), 4096 * kMiB);
  EXPECT_EQ(parse_size("77"), 77);
  for (const char* text : {"", "M", "-1", "0", "nan", "inf", "3X", "3Mx", "1e99"})
    EXPECT_FALSE(parse_size(text).has_value()) << text;
}

}  // namespace
}  // namespace braid
