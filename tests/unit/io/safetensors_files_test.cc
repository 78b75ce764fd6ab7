// Safetensors files as people have them: with tensors at odd addresses, or something else by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "braid/io/safetensors_file.h"
#include "unit/io/expect_error.h"
#include "unit/io/safetensors_writer.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

using test::expect_error;
using test::safetensors_bytes;
using test::TempFolder;

// Headers that are not padded put tensors at any address: such tensors are copied, once.
TEST(Safetensors, TensorsAtOddAddressesAreRead) {
  const TempFolder folder;
  for (size_t pad = 0; pad < 8; ++pad) {
    SCOPED_TRACE(pad);
    std::string header = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                         R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                         R"("e":{"dtype":"F16","shape":[0],"data_offsets":[22,22]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const float a[4] = {1, -2, 3, 4e9f};
    const uint16_t b[3] = {0x3f80, 0xbf80, 0x7f7f};
    std::string data(22, '\0');
    std::memcpy(data.data(), a, 16);
    std::memcpy(data.data() + 16, b, 6);
    const SafetensorsFile file(
        folder.write("m.safetensors", safetensors_bytes(header + std::string(pad, ' '), data)));
    EXPECT_EQ(file.find_type("a")->shape, (Shape{2, 2}));
    const TensorView first = file.get("a"), second = file.get("b");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data) % 4, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(second.data) % 2, 0u);
    EXPECT_EQ(std::memcmp(first.data, a, 16), 0);
    EXPECT_EQ(std::memcmp(second.data, b, 6), 0);
    EXPECT_EQ(file.get("a").data, first.data) << "copied again";
    EXPECT_EQ(file.get("e").bytes(), 0);
    const auto* mapped = reinterpret_cast<const std::byte*>(file.file().bytes().data());
    const bool inside = first.data >= mapped && first.data < mapped + file.file().size();
    EXPECT_EQ(inside, pad % 4 == 0) << "copied though it need not be, or not though it must";
  }
}

TEST(Safetensors, OtherFilesAreNamed) {
  const TempFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    expect_error(ErrorCode::kInvalidArgument, {"m.safetensors: is ", what},
                 [&] { SafetensorsFile file(folder.write("m.safetensors", bytes)); });
  };
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer");
  refused("<!DOCTYPE html><html>", "web page");
  refused(std::string("PK\3\4\0\0\0\0x", 9), "ZIP or PyTorch");
  // The lengths of these headers begin like a pickle and like gzip.
  for (const size_t length : {size_t{0x0280}, size_t{0x8b1f}}) {
    std::string header = "{}";
    header.resize(length, ' ');
    const SafetensorsFile file(folder.write("m.safetensors", safetensors_bytes(header)));
    EXPECT_TRUE(file.tensors().empty());
  }
}

}  // namespace
}  // namespace braid
