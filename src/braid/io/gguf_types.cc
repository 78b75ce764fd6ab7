#include "braid/io/gguf_types.h"

#include <algorithm>
#include <array>

namespace braid {
namespace {

struct ValueType {
  std::string_view name;
  int64_t min_bytes;
};

constexpr std::array<ValueType, kNumGgufTypes> kValueTypes = {{
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", 8},
    {"array", 12},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
}};

struct Numbered {
  uint32_t id;
  GgufTensorType type;
};

constexpr Numbered supported(uint32_t id, DType dtype, std::string_view name, int elems,
                             int bytes) {
  return {id, {name, elems, bytes, dtype}};
}

constexpr Numbered known(uint32_t id, std::string_view name, int elems, int bytes) {
  return {id, {name, elems, bytes, std::nullopt}};
}

// Formats no longer in GGUF (q4_2, q4_3, q4_0_4_4, ...) and formats for memory alone (q8_1, q8_k)
// are listed to be refused by name.
constexpr auto kTensorTypes = std::to_array<Numbered>({
    supported(0, DType::f32, "f32", 1, 4),
    supported(1, DType::f16, "f16", 1, 2),
    supported(2, DType::q4_0, "q4_0", 32, 18),
    supported(3, DType::q4_1, "q4_1", 32, 20),
    known(4, "q4_2", 16, 10),
    known(5, "q4_3", 16, 12),
    supported(6, DType::q5_0, "q5_0", 32, 22),
    supported(7, DType::q5_1, "q5_1", 32, 24),
    supported(8, DType::q8_0, "q8_0", 32, 34),
    known(9, "q8_1", 32, 36),
    known(10, "q2_k", 256, 84),
    known(11, "q3_k", 256, 110),
    supported(12, DType::q4_k, "q4_k", 256, 144),
    supported(13, DType::q5_k, "q5_k", 256, 176),
    supported(14, DType::q6_k, "q6_k", 256, 210),
    known(15, "q8_k", 256, 292),
    known(16, "iq2_xxs", 256, 66),
    known(17, "iq2_xs", 256, 74),
    known(18, "iq3_xxs", 256, 98),
    known(19, "iq1_s", 256, 50),
    known(20, "iq4_nl", 32, 18),
    known(21, "iq3_s", 256, 110),
    known(22, "iq2_s", 256, 82),
    known(23, "iq4_xs", 256, 136),
    known(24, "i8", 1, 1),
    known(25, "i16", 1, 2),
    supported(26, DType::i32, "i32", 1, 4),
    known(27, "i64", 1, 8),
    known(28, "f64", 1, 8),
    known(29, "iq1_m", 256, 56),
    supported(30, DType::bf16, "bf16", 1, 2),
    known(31, "q4_0_4_4", 32, 18),
    known(32, "q4_0_4_8", 32, 18),
    known(33, "q4_0_8_8", 32, 18),
    known(34, "tq1_0", 256, 54),
    known(35, "tq2_0", 256, 66),
    known(36, "iq4_nl_4_4", 32, 18),
    known(37, "iq4_nl_4_8", 32, 18),
    known(38, "iq4_nl_8_8", 32, 18),
    known(39, "mxfp4", 32, 17),
    known(40, "nvfp4", 64, 36),
    known(41, "q1_0", 128, 18),
});

}  // namespace

std::string_view name(GgufType type) {
  return kValueTypes[static_cast<uint32_t>(type)].name;
}

int64_t min_bytes(GgufType type) {
  return kValueTypes[static_cast<uint32_t>(type)].min_bytes;
}

const GgufTensorType* gguf_tensor_type(uint32_t id) {
  const auto* at = std::ranges::find(kTensorTypes, id, &Numbered::id);
  return at == kTensorTypes.end() ? nullptr : &at->type;
}

std::string readable_gguf_types() {
  std::string names;
  for (const Numbered& n : kTensorTypes) {
    if (!n.type.dtype) continue;
    if (!names.empty()) names += ", ";
    names += n.type.name;
  }
  return names;
}

}  // namespace braid
