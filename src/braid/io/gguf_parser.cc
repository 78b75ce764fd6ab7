#include "braid/io/gguf_parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/io/gguf_cursor.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kDefaultAlignment = 32;
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint32_t kMaxRank = 4;
constexpr size_t kMaxKeyBytes = 65535;
// The format's least bytes for an entry: a count above the rest's capacity is a lie.
constexpr int64_t kMinEntryBytes = 8 + 1 + 4 + 1;       // key, type, value
constexpr int64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;  // name, rank, type, offset
constexpr int64_t kReserve = 4096;                      // more is reserved as entries really come

struct Counts {
  int64_t tensors = 0;
  int64_t entries = 0;
};

void check_magic(const GgufCursor& cursor, std::span<const std::byte> bytes) {
  if (is_gguf(bytes)) return;
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  fail(ErrorCode::kMalformed, "{}: begins with {}, a GGUF file begins with 'GGUF'", cursor.file(),
       quoted({text, std::min(bytes.size(), kMagic.size())}));
}

uint32_t read_version(GgufCursor& cursor) {
  cursor.set_field("version");
  const auto version = cursor.read<uint32_t>();
  if (version == 2 || version == 3) return version;
  if ((version & 0xffff) == 0 && version != 0) {
    fail(ErrorCode::kUnsupported, "{}: is a big-endian GGUF file, little-endian is supported",
         cursor.file());
  }
  fail(ErrorCode::kUnsupported, "{}: has GGUF version {}, versions 2 and 3 are supported",
       cursor.file(), version);
}

Counts read_counts(GgufCursor& cursor) {
  Counts counts;
  cursor.set_field("list of tensors");
  counts.tensors = cursor.read_count(kMinTensorBytes);
  cursor.set_field("list of metadata");
  counts.entries = cursor.read_count(kMinEntryBytes);
  return counts;
}

std::string_view read_key(GgufCursor& cursor) {
  cursor.set_field("metadata key");
  const std::string_view key = cursor.read_string();
  cursor.set_field("metadata key", key);
  if (key.empty()) cursor.malformed("is empty");
  if (key.size() > kMaxKeyBytes) {
    cursor.malformed("has {} bytes, at most {} are allowed", key.size(), kMaxKeyBytes);
  }
  return key;
}

GgufValue read_value(GgufCursor& cursor, std::string_view key) {
  cursor.set_field("metadata", key);
  GgufValue value;
  value.type = cursor.read_type();
  if (value.type != GgufType::array) {
    value.data = cursor.skip(value.type);
    return value;
  }
  value.is_array = true;
  value.type = cursor.read_type();
  if (value.type == GgufType::array) {
    fail(ErrorCode::kUnsupported, "{}: metadata {} is an array of arrays", cursor.file(),
         quoted(key));
  }
  value.count = cursor.read_count(min_bytes(value.type));
  value.data = cursor.skip_array(value.type, value.count);
  return value;
}

GgufMetadata read_metadata(GgufCursor& cursor, int64_t count) {
  std::vector<GgufEntry> entries;
  entries.reserve(static_cast<size_t>(std::min(count, kReserve)));
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view key = read_key(cursor);
    entries.push_back({key, read_value(cursor, key)});
  }
  return {std::string(cursor.file()), std::move(entries)};
}

int64_t read_alignment(const std::string& file, const GgufMetadata& metadata) {
  const auto alignment = metadata.get_or<uint32_t>(kAlignmentKey, kDefaultAlignment);
  if (!std::has_single_bit(alignment)) {
    fail(ErrorCode::kMalformed, "{}: {} is {}, a power of two is wanted", file, kAlignmentKey,
         alignment);
  }
  return alignment;
}

std::vector<int64_t> read_shape(GgufCursor& cursor) {
  const auto rank = cursor.read<uint32_t>();
  if (rank > kMaxRank) {
    cursor.malformed("has {} dimensions, at most {} are allowed", rank, kMaxRank);
  }
  std::vector<int64_t> shape(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    const auto dim = cursor.read<uint64_t>();
    if (dim > INT64_MAX) cursor.malformed("has dimension {}, the limit is 2^63 - 1", dim);
    shape[rank - 1 - i] = static_cast<int64_t>(dim);  // the file lists the innermost first
  }
  return shape;
}

// Bytes of the packed tensor.
int64_t checked_bytes(const GgufCursor& cursor, const GgufTensorType& type,
                      const std::vector<int64_t>& shape) {
  const int64_t cols = shape.empty() ? 1 : shape.back();
  if (cols % type.block_elems != 0) {
    cursor.malformed("has rows of {} elements, {} comes in blocks of {}", cols, type.name,
                     type.block_elems);
  }
  const auto elems = checked_elems(shape);
  const auto bytes =
      elems ? checked_mul(*elems / type.block_elems, type.block_bytes) : std::nullopt;
  if (!bytes) {
    cursor.malformed("has shape [{}]: its size in bytes overflows", fmt::join(shape, ", "));
  }
  return *bytes;
}

// The offset is still relative to the tensor data, which begin after the last record.
TensorRecord read_tensor(GgufCursor& cursor, int64_t alignment) {
  cursor.set_field("tensor name");
  const std::string_view name = cursor.read_string();
  if (name.empty()) cursor.malformed("is empty");
  cursor.set_field("tensor", name);
  TensorRecord record;
  record.name = name;
  record.shape = read_shape(cursor);
  const auto id = cursor.read<uint32_t>();
  const GgufTensorType* type = gguf_tensor_type(id);
  if (type == nullptr) {
    fail(ErrorCode::kUnsupported, "{}: tensor {} has type {}, which is no known type",
         cursor.file(), quoted(name), id);
  }
  record.type = type->name;
  record.dtype = type->dtype;
  record.bytes = checked_bytes(cursor, *type, record.shape);
  const auto offset = cursor.read<uint64_t>();
  if (offset > INT64_MAX || offset % static_cast<uint64_t>(alignment) != 0) {
    cursor.malformed("begins at byte {} of the data, a multiple of the alignment {} is wanted",
                     offset, alignment);
  }
  record.offset = static_cast<int64_t>(offset);
  return record;
}

// Turns the record's offset into an offset from the start of the file.
void place(TensorRecord& record, const std::string& file, int64_t data_offset, int64_t file_bytes) {
  const auto begin = checked_add(data_offset, record.offset);
  const auto end = begin ? checked_add(*begin, record.bytes) : std::nullopt;
  if (!end || *end > file_bytes) {
    fail(ErrorCode::kMalformed,
         "{}: tensor {} ({} [{}], {} bytes at {} of the data) ends behind the file's {} bytes: "
         "the file is cut off or broken",
         file, quoted(record.name), record.type, fmt::join(record.shape, ", "), record.bytes,
         record.offset, file_bytes);
  }
  record.offset = *begin;
}

}  // namespace

bool is_gguf(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

GgufContents parse_gguf(const std::string& file, std::span<const std::byte> bytes) {
  GgufCursor cursor(file, bytes);
  check_magic(cursor, bytes);
  cursor.set_field("magic");
  cursor.read<uint32_t>();
  GgufContents contents;
  contents.version = read_version(cursor);
  const Counts counts = read_counts(cursor);
  contents.metadata = read_metadata(cursor, counts.entries);
  contents.alignment = read_alignment(file, contents.metadata);
  std::vector<TensorRecord> records;
  records.reserve(static_cast<size_t>(std::min(counts.tensors, kReserve)));
  for (int64_t i = 0; i < counts.tensors; ++i) {
    records.push_back(read_tensor(cursor, contents.alignment));
  }
  contents.data_offset = round_up(cursor.offset(), contents.alignment);
  const auto file_bytes = static_cast<int64_t>(bytes.size());
  for (TensorRecord& record : records) place(record, file, contents.data_offset, file_bytes);
  contents.tensors = TensorTable(file, std::move(records), readable_gguf_types());
  return contents;
}

}  // namespace braid
