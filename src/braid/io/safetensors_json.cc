#include "braid/io/safetensors_json.h"

#include <array>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/io/json_text.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";
constexpr size_t kMaxRank = 64;
constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

// A state per place of the fixed grammar: the grammar bounds the depth.
class HeaderReader final : public json::json_sax_t {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  SafetensorsJson take() { return std::move(out_); }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kHeader;
        return true;
      case Place::kEntry:
        place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
        return true;
      default:
        unexpected("an object");
    }
  }

  bool key(std::string& key) override {
    switch (place_) {
      case Place::kHeader:
        start_entry(key);
        return true;
      case Place::kMetadata:
        metadata_key_ = key;
        if (out_.metadata.contains(key)) malformed("key {} occurs twice", braid::quoted(key));
        place_ = Place::kMetadataValue;
        return true;
      default:
        start_field(key);
        return true;
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (size_t i = 0; i < kFields.size(); ++i) {
        if (!seen_[i]) malformed("has no {}", kFields[i]);
      }
    }
    place_ = Place::kHeader;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kShape || place_ == Place::kOffsets) {
      list_.clear();
      in_list_ = true;
      if (++arrays_ == 1) return true;
    }
    unexpected("a list");
  }

  bool end_array() override {
    in_list_ = false;
    arrays_ = 0;
    if (place_ == Place::kShape) {
      out_.entries.back().shape.assign(list_.begin(), list_.end());
    } else {
      if (list_.size() != 2) malformed("data_offsets has {} numbers, wanted are 2", list_.size());
      out_.entries.back().begin = list_[0];
      out_.entries.back().end = list_[1];
    }
    place_ = Place::kTensor;
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadataValue) {
      out_.metadata.emplace(std::move(metadata_key_), std::move(text));
      place_ = Place::kMetadata;
    } else if (place_ == Place::kDtype) {
      out_.entries.back().dtype = std::move(text);
      place_ = Place::kTensor;
    } else {
      unexpected(fmt::format("the string {}", braid::quoted(text)));
    }
    return true;
  }

  bool number_unsigned(json::number_unsigned_t number) override {
    if (!in_list_) unexpected(fmt::format("the number {}", number));
    if (number > INT64_MAX) malformed("{} holds {}, the limit is 2^63 - 1", field_, number);
    if (list_.size() == kMaxRank) malformed("{} has more than {} numbers", field_, kMaxRank);
    list_.push_back(static_cast<int64_t>(number));
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(json::number_integer_t number) override {
    unexpected(fmt::format("the number {}", number));
  }
  bool number_float(json::number_float_t, const std::string& text) override {
    unexpected(fmt::format("the number {}", braid::quoted(text)));
  }
  bool binary(json::binary_t&) override { unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail(ErrorCode::kMalformed, "{}: the header is no valid JSON at byte {}: {}", file_, position,
         json_error_text(error));
  }

 private:
  enum class Place {
    kStart,
    kHeader,         // in the outer object
    kEntry,          // before a tensor's or __metadata__'s object
    kMetadata,       // in __metadata__
    kMetadataValue,  // before its string
    kTensor,         // in a tensor's object
    kDtype,          // before or in the value of dtype
    kShape,
    kOffsets,
  };

  void start_entry(std::string& key) {
    place_ = Place::kEntry;
    in_metadata_ = key == kMetadata;
    name_ = braid::quoted(key);
    if (!in_metadata_) {
      out_.entries.emplace_back().name = std::move(key);
      seen_ = {};
    } else if (std::exchange(metadata_seen_, true)) {
      malformed("occurs twice");
    }
  }

  void start_field(const std::string& key) {
    const auto at = std::ranges::find(kFields, key);
    if (at == kFields.end()) malformed("has the unknown field {}", braid::quoted(key));
    const auto index = static_cast<size_t>(at - kFields.begin());
    field_ = *at;
    if (std::exchange(seen_[index], true)) malformed("has {} twice", field_);
    constexpr std::array kPlaces = {Place::kDtype, Place::kShape, Place::kOffsets};
    place_ = kPlaces[index];
  }

  template <class... Args>
  [[noreturn]] void malformed(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kMalformed, "{}: header entry {} {}", file_, name_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void unexpected(std::string_view seen) const {
    switch (place_) {
      case Place::kMetadataValue:
        malformed("holds {} at key {}, wanted is a string", seen, braid::quoted(metadata_key_));
      case Place::kDtype:
        malformed("has {} as dtype, wanted is a string", seen);
      case Place::kShape:
      case Place::kOffsets:
        malformed("has {} in {}, wanted is a list of non-negative integers", seen, field_);
      default:
        malformed("is {}, wanted is an object", seen);
    }
  }

  const std::string& file_;
  SafetensorsJson out_;
  Place place_ = Place::kStart;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  bool in_list_ = false;
  int arrays_ = 0;
  std::string name_;            // of the entry, quoted for messages
  std::string_view field_;      // of the tensor
  std::array<bool, 3> seen_{};  // kFields that the tensor has
  std::string metadata_key_;
  std::vector<int64_t> list_;
};

}  // namespace

SafetensorsJson parse_safetensors_json(const std::string& file, std::string_view text) {
  HeaderReader reader(file);
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace braid
