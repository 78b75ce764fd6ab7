// Any bytes as a GGUF file: parsed, and when they pass, every value and tensor is read.
#include <cstdlib>

#include "braid/io/gguf_parser.h"
#include "fuzz/driver/driver.h"
#include "unit/io/gguf_writer.h"
#include "unit/io/read_tensors.h"

namespace {

using namespace braid;
using test::encoded;
using test::GgufWriter;

template <class... T>
void read_as(const GgufMetadata& metadata, std::string_view key) {
  const auto one = [&](auto read) {
    try {
      read();
    } catch (const Error&) {
    }
  };
  (one([&] { metadata.get<T>(key); }), ...);
  (one([&] { metadata.get<std::vector<T>>(key); }), ...);
}

void read_metadata(const GgufMetadata& metadata) {
  for (const GgufEntry& entry : metadata.entries()) {
    read_as<bool, int32_t, uint32_t, int64_t, uint64_t, float, double, std::string_view>(metadata,
                                                                                         entry.key);
    if (preview(entry.value).size() > 1000 || type_name(entry.value).empty()) std::abort();
    if (metadata.value(entry.key)->data != entry.value.data) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(begin, begin + size);
  try {
    const GgufContents contents = parse_gguf("fuzz.gguf", bytes);
    read_metadata(contents.metadata);
    test::read_tensors(contents.tensors, bytes);
  } catch (const Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  GgufWriter small;
  small.u32("general.alignment", 8);
  small.alignment = 8;
  small.text("general.architecture", "llama").entry("flag", 7, encoded<uint8_t>(1));
  small.array("tokens", 8, {encoded("a"), encoded("bc"), encoded("")});
  small.array("scores", 6, {encoded(1.0f), encoded(-1.0f)});
  small.tensor("x", {3, 2}, 0, std::string(24, 'x')).tensor("s", {}, 1, "ab");

  GgufWriter typed;
  for (uint32_t type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 10u, 11u, 12u}) {
    typed.entry("k" + std::to_string(type), type, std::string(min_bytes(GgufType{type}), '\1'));
    typed.array("a" + std::to_string(type), type, {std::string(min_bytes(GgufType{type}), '\1')});
  }
  typed.tensor("q", {2, 256}, 12, std::string(288, 'q'))
      .tensor("b", {1, 2, 32}, 3, std::string(40, 'b'));
  typed.tensor("i", {1, 256}, 16, std::string(66, 'i')).tensor("e", {0, 3}, 26, "");
  return {small.build(), typed.build(), GgufWriter().build()};
}
