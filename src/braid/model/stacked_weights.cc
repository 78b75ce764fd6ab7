#include "braid/model/stacked_weights.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

constexpr std::string_view kMark = ".mlp.experts.";

std::string text(const TensorType& type) {
  return fmt::format("{} {}", name(type.dtype), to_string(type.shape));
}

}  // namespace

bool StackedWeights::names_experts(std::string_view canonical) {
  return canonical.find(kMark) != std::string_view::npos;
}

bool StackedWeights::names(std::string_view canonical) {
  return names_experts(canonical) || canonical.ends_with(".attn.k_b") ||
         canonical.ends_with(".attn.v_b");
}

// A file's separate k_b and v_b, or each head's rows within kv_b.
StackedWeights::Place StackedWeights::find_heads(std::string_view canonical) const {
  BRAID_CHECK(config_.latent.has_value(), "no heads have '{}'", canonical);
  const LatentConfig& l = *config_.latent;
  const int64_t H = config_.Hq;
  const bool keys = canonical.ends_with(".k_b");
  const std::string stem(canonical.substr(0, canonical.size() - std::string_view("k_b").size()));
  const auto tensor = [&](const std::string& name) {
    return gguf_ ? family_.gguf_name(name) : family_.hf_name(name);
  };
  const std::string both = tensor(stem + "kv_b");
  if (!l.transposed) {
    const int64_t rows = l.Dn + l.Dv;
    const TensorType type = source_.type(both, {H * rows, l.R});
    return {.tensors = {both},
            .type = {type.dtype, {H, keys ? l.Dn : l.Dv, l.R}},
            .first_row = keys ? 0 : l.Dn,
            .rows = rows};
  }
  const std::string own = tensor(std::string(canonical));
  if (source_.find_type(both)) {
    fail(ErrorCode::kMalformed, "{}: tensors {} and {} are both there, wanted is one form",
         source_.path(), quoted(both), quoted(own));
  }
  const Shape shape = keys ? Shape{H, l.R, l.Dn} : Shape{H, l.Dv, l.R};
  return {.tensors = {own}, .type = source_.type(own, shape), .rows = shape[1]};
}

StackedWeights::Place StackedWeights::find_experts(std::string_view layer,
                                                   std::string_view part) const {
  const int64_t E = config_.experts.value().E;
  const ExpertNames& names = gguf_ ? family_.gguf_experts : family_.hf_experts;
  const std::string_view own = part == "gate" ? names.gate : part == "up" ? names.up : names.down;
  const auto filled = [&](std::string_view pattern, int64_t e = 0) {
    return fmt::format(fmt::runtime(pattern), layer, e, own, part);
  };
  const auto each = [&](int64_t e) { return filled(names.each, e); };
  const std::string all = filled(names.all), fused = filled(names.fused);
  const auto there = [&](const std::string& tensor) {
    return source_.find_type(tensor).has_value();
  };
  std::vector<std::string> forms;
  for (const std::string& tensor : {all, part == "down" ? all : fused, each(0)}) {
    if (there(tensor) && std::ranges::find(forms, tensor) == forms.end()) forms.push_back(tensor);
  }
  if (forms.size() > 1) {
    fail(ErrorCode::kMalformed,
         "{}: tensors {} and {} are both there, wanted is one form of experts", source_.path(),
         quoted(forms[0]), quoted(forms[1]));
  }
  const auto refuse = [&](const std::string& tensor, const TensorType& type, std::string_view why) {
    fail(ErrorCode::kMalformed, "{}: tensor {} is {}, {}", source_.path(), quoted(tensor),
         text(type), why);
  };
  Place place;
  if (!forms.empty() && forms[0] != each(0)) {
    place.tensors = forms;
    place.type = source_.type(forms[0]);
    Shape& shape = place.type.shape;
    if (shape.rank() != 3 || shape[0] != E) {
      refuse(forms[0], place.type, fmt::format("wanted are {} experts", E));
    }
    place.rows = shape[1];
    if (forms[0] != fused) return place;
    if (shape[1] % 2 != 0) refuse(fused, place.type, "wanted are rows of gate and as many of up");
    shape[1] /= 2;
    place.first_row = part == "up" ? shape[1] : 0;
    return place;
  }
  for (int64_t e = 0; e < E; ++e) {
    const std::string tensor = each(e);
    const auto type = source_.find_type(tensor);
    if (!type) {
      fail(ErrorCode::kNotFound, "{}: there is no tensor {}, one of {} experts", source_.path(),
           quoted(tensor), E);
    }
    if (type->shape.rank() != 2) refuse(tensor, *type, "wanted are two dimensions");
    if (e == 0) {
      place.type = {type->dtype, {E, type->shape[0], type->shape[1]}};
      place.rows = type->shape[0];
    }
    const TensorType first = {place.type.dtype, {place.rows, place.type.shape[2]}};
    if (type->dtype != first.dtype || type->shape != first.shape) {
      refuse(tensor, *type, fmt::format("expert 0 is {}", text(first)));
    }
    place.tensors.push_back(tensor);
  }
  return place;
}

const StackedWeights::Place& StackedWeights::place(std::string_view canonical) const {
  const std::lock_guard lock(mutex_);
  if (const auto known = places_.find(canonical); known != places_.end()) return known->second;
  Place found;
  if (names_experts(canonical)) {
    const size_t mark = canonical.find(kMark), layer = canonical.find('.') + 1;
    found =
        find_experts(canonical.substr(layer, mark - layer), canonical.substr(mark + kMark.size()));
  } else {
    found = find_heads(canonical);
  }
  return places_.emplace(canonical, std::move(found)).first->second;
}

TensorType StackedWeights::type(std::string_view canonical) const {
  return place(canonical).type;
}

std::vector<std::string> StackedWeights::tensors(std::string_view canonical) const {
  return place(canonical).tensors;
}

TensorView StackedWeights::view(std::string_view canonical) const {
  const Place& from = place(canonical);
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& matrices = matrices_[std::string(canonical)];
  const int64_t row_bytes = bytes_of(from.type.dtype, from.type.shape[2]);
  if (matrices.empty()) {
    for (const std::string& tensor : from.tensors) {
      std::byte* data = source_.get(tensor).data + from.first_row * row_bytes;
      const int64_t here = from.tensors.size() == 1 ? from.type.shape[0] : 1;
      for (int64_t e = 0; e < here; ++e) matrices.push_back(data + e * from.rows * row_bytes);
    }
  }
  TensorView view = make_view(matrices[0], from.type.dtype, from.type.shape);
  view.matrices = matrices.data();
  return view;
}

}  // namespace braid
