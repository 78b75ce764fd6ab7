// Any bytes as a safetensors file, and any text as strict JSON: the two parsers must agree that a
// header is JSON.
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/io/json_text.h"
#include "braid/io/safetensors_header.h"
#include "fuzz/driver/driver.h"
#include "unit/io/read_tensors.h"
#include "unit/io/safetensors_writer.h"

namespace {

using namespace braid;

// The same header through the tree of the strict parser: it holds the same tensors.
void check_against_tree(const SafetensorsHeader& header, std::string_view text) {
  const nlohmann::json tree = parse_json(text, "tree");
  const size_t tensors = tree.size() - tree.count("__metadata__");
  if (tensors != header.tensors.records().size()) std::abort();
  for (const TensorRecord& record : header.tensors.records()) {
    const nlohmann::json& entry = tree.at(record.name);
    if (entry.at("dtype") != record.type || entry.at("shape") != record.shape) std::abort();
    const int64_t length =
        entry.at("data_offsets")[1].get<int64_t>() - entry.at("data_offsets")[0].get<int64_t>();
    if (length != record.bytes) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The length field would hide most mutations of the header: it is set to fit in half of the runs.
  std::string input(reinterpret_cast<const char*>(data), size);
  if (size > 9 && data[size - 1] % 2 == 0) {
    const size_t end = input.rfind('}');
    if (end != std::string::npos && end >= 8) {
      input = test::safetensors_bytes(input.substr(8, end - 7), input.substr(end + 1));
    }
  }
  const auto* begin = reinterpret_cast<const std::byte*>(input.data());
  const std::vector<std::byte> bytes(begin, begin + input.size());
  SafetensorsHeader header;
  try {
    header = parse_safetensors("fuzz.safetensors", bytes);
  } catch (const Error&) {
    return 0;
  }
  test::read_tensors(header.tensors, bytes);
  uint64_t length = 0;
  std::memcpy(&length, input.data(), sizeof(length));
  check_against_tree(header, std::string_view(input).substr(8, length));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string two = R"({"__metadata__":{"format":"pt"},)"
                          R"("a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                          R"("b":{"dtype":"BF16","shape":[3,0],"data_offsets":[16,16]},)"
                          R"("c":{"dtype":"U8","shape":[],"data_offsets":[16,17]}})";
  return {test::safetensors_bytes(two, std::string(17, 'd')), test::safetensors_bytes("{}"),
          test::safetensors_bytes(R"({"x":{"shape":[1],"dtype":"I32","data_offsets":[0,4]}}  )",
                                  "dddd")};
}
