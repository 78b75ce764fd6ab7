#include "braid/io/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/io/quoted.h"
#include "braid/io/safetensors_json.h"

namespace braid {
namespace {

constexpr int64_t kLengthBytes = 8;

struct ElementType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

constexpr auto kTypes = std::to_array<ElementType>({
    {"F32", 32, DType::f32},          {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},        {"I32", 32, DType::i32},
    {"BOOL", 8, std::nullopt},        {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},     {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, std::nullopt},          {"I8", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},        {"U32", 32, std::nullopt},
    {"C64", 64, std::nullopt},        {"F64", 64, std::nullopt},
    {"I64", 64, std::nullopt},        {"U64", 64, std::nullopt},
});

const ElementType* element_type(std::string_view name) {
  const auto* at = std::ranges::find(kTypes, name, &ElementType::name);
  return at == kTypes.end() ? nullptr : at;
}

std::string readable_types() {
  std::string names;
  for (const ElementType& type : kTypes) {
    if (type.dtype) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  }
  return names;
}

// The JSON text; its length and first byte are checked.
std::string_view header_text(const std::string& file, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kLengthBytes) {
    fail(ErrorCode::kMalformed, "{}: has {} bytes, a safetensors file begins with {} of length",
         file, size, kLengthBytes);
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const int64_t limit = std::min(kMaxSafetensorsHeaderBytes, size - kLengthBytes);
  if (length > static_cast<uint64_t>(limit)) {
    fail(ErrorCode::kMalformed, "{}: header length is {}, at most {} is allowed in {} bytes", file,
         length, limit, size);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (text.empty() || text[0] != '{') {
    fail(ErrorCode::kMalformed, "{}: the header begins with {}, '{{' is wanted", file,
         quoted(text.substr(0, 1)));
  }
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    fail(ErrorCode::kMalformed, "{}: the header has a NUL byte at {}", file, at);
  }
  return text;
}

void check_extent(const std::string& file, const SafetensorsEntry& entry, const ElementType* type,
                  int64_t data_bytes) {
  const auto malformed = [&](const std::string& what) {
    fail(ErrorCode::kMalformed, "{}: tensor {}: {}", file, quoted(entry.name), what);
  };
  if (entry.begin > entry.end) {
    malformed(fmt::format("data_offsets [{}, {}] run backwards", entry.begin, entry.end));
  }
  if (entry.end > data_bytes) {
    malformed(
        fmt::format("data_offsets [{}, {}] end behind the file's {} bytes of data: it is cut "
                    "off or broken",
                    entry.begin, entry.end, data_bytes));
  }
  const auto elems = checked_elems(entry.shape);
  const auto bits = elems ? checked_mul(*elems, type ? type->bits : 1) : std::nullopt;
  if (!bits) {
    malformed(fmt::format("shape [{}]: its size overflows", fmt::join(entry.shape, ", ")));
  }
  if (type == nullptr) return;  // refused when it is asked for
  if (*bits % 8 != 0 || *bits / 8 != entry.end - entry.begin) {
    malformed(fmt::format("{} [{}] takes {} bits, data_offsets [{}, {}] hold {} bytes", entry.dtype,
                          fmt::join(entry.shape, ", "), *bits, entry.begin, entry.end,
                          entry.end - entry.begin));
  }
}

// Back to back from the header's end to the file's, in any order of listing.
void check_contiguous(const std::string& file, const TensorTable& tensors, int64_t data_offset,
                      int64_t file_bytes) {
  std::vector<const TensorRecord*> order;
  order.reserve(tensors.records().size());
  for (const TensorRecord& record : tensors.records()) order.push_back(&record);
  std::ranges::sort(order, {}, [](const auto* r) { return std::pair(r->offset, r->bytes); });
  int64_t at = data_offset;
  for (const TensorRecord* record : order) {
    if (record->offset != at) {
      fail(ErrorCode::kMalformed, "{}: tensor {} begins at byte {} of the data, {} is wanted", file,
           quoted(record->name), record->offset - data_offset, at - data_offset);
    }
    at += record->bytes;
  }
  if (at != file_bytes) {
    fail(ErrorCode::kMalformed,
         "{}: the tensors take {} bytes, the file holds {}: it is cut off or broken", file,
         at - data_offset, file_bytes - data_offset);
  }
}

TensorRecord to_record(const std::string& file, SafetensorsEntry&& entry, int64_t data_offset,
                       int64_t file_bytes) {
  const ElementType* type = element_type(entry.dtype);
  check_extent(file, entry, type, file_bytes - data_offset);
  return {.name = std::move(entry.name),
          .type = std::move(entry.dtype),
          .dtype = type ? type->dtype : std::nullopt,
          .shape = std::move(entry.shape),
          .offset = data_offset + entry.begin,
          .bytes = entry.end - entry.begin};
}

}  // namespace

SafetensorsHeader parse_safetensors(const std::string& file, std::span<const std::byte> bytes) {
  const std::string_view text = header_text(file, bytes);
  const int64_t data_offset = kLengthBytes + static_cast<int64_t>(text.size());
  const auto file_bytes = static_cast<int64_t>(bytes.size());
  SafetensorsJson parsed = parse_safetensors_json(file, text);
  std::vector<TensorRecord> records;
  records.reserve(parsed.entries.size());
  for (SafetensorsEntry& entry : parsed.entries) {
    records.push_back(to_record(file, std::move(entry), data_offset, file_bytes));
  }
  SafetensorsHeader header{std::move(parsed.metadata),
                           TensorTable(file, std::move(records), readable_types())};
  check_contiguous(file, header.tensors, data_offset, file_bytes);
  return header;
}

}  // namespace braid
