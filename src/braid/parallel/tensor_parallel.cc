#include "braid/parallel/tensor_parallel.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "braid/ops/attention.h"
#include "braid/ops/experts.h"
#include "braid/ops/fusion.h"
#include "braid/ops/latent_attention.h"
#include "braid/ops/linear.h"

namespace braid {
namespace {

// Fewest units of `unit` columns that make whole blocks in the dtype.
int64_t units_per_cut(DType dtype, int64_t unit) {
  return std::lcm<int64_t>(unit, info(dtype).block_elems) / unit;
}

// [0, n) units over P ranks, cut at multiples of `granule` units (the last part takes the
// rest).
std::vector<Range> divide(int64_t n, int64_t granule, int P, std::string_view what) {
  const int64_t granules = ceil_div(n, granule);
  if (granules < P) {
    fail(ErrorCode::kInvalidArgument,
         "tensor parallelism over {} ranks: this model has {} {}, which divide into at most {} "
         "parts",
         P, n, what, granules);
  }
  std::vector<Range> parts;
  for (int r = 0; r < P; ++r) {
    const Range part = even_part(granules, P, r);
    parts.push_back({part.begin * granule, std::min(part.end * granule, n)});
  }
  return parts;
}

// A linear's product.
struct Product {
  const Op* linear = nullptr;
  size_t index = 0;

  ValueId w() const { return linear->inputs[1 + index]; }
  ValueId bias() const { return linear->inputs[1 + linear->outputs.size() + index]; }
};

// A value's sources, over ops that keep columns: products and attention's results.
struct Origin {
  std::vector<Product> products;
  std::vector<const Op*> attentions;
  std::vector<const Op*> between;
  bool other = false;  // another source is in it, for instance the residual stream
};

class WeightDivision {
 public:
  WeightDivision(const Program& program, int P)
      : program_(program), readers_(count_readers(program)), producer_(program.values.size()) {
    plan_.P = P;
    for (const Op& op : program.ops) {
      for (ValueId id : op.outputs) producer_[id] = &op;
    }
  }

  LayoutPlan run(bool whole_experts) {
    for (const Op& op : program_.ops) {
      if (op.def != &ops::kLinear || op.outputs.size() != 1) continue;
      Origin x = origin(op.inputs[0]);
      if (!x.other) joins_.push_back({{&op, 0}, std::move(x)});
    }
    for (const Op& op : program_.ops) {
      if (op.def == &ops::kAttention) divide_heads(op);
      if (op.def == &ops::kLatentAttention) divide_latent_heads(op);
    }
    for (ValueId output : program_.outputs) divide_head(output);
    for (const auto& [down, x] : joins_) {
      if (x.attentions.empty()) divide_ffn(down, x);
    }
    for (const Op& op : program_.ops) {
      if (op.def == &ops::kExpertLinear && !whole_experts) divide_experts(op);
    }
    return plan_;
  }

 private:
  // Whether an op's output has the columns of this input.
  bool keeps_columns(const Op& op, ValueId input) const {
    if (input == kNoValue) return false;
    const Value& x = program_.value(input);
    return x.kind != ValueKind::weight && x.type.shape.rank() == 2 &&
           x.type.shape[1] == program_.value(op.outputs[0]).type.shape[1];
  }

  Origin origin(ValueId id) const {
    Origin found;
    std::vector<ValueId> open = {id};
    std::unordered_set<ValueId> seen = {id};
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const Op* op = producer_[value];
      if (op != nullptr && op->def == &ops::kLinear) {
        const auto at = std::ranges::find(op->outputs, value) - op->outputs.begin();
        found.products.push_back({op, static_cast<size_t>(at)});
      } else if (op != nullptr &&
                 (op->def == &ops::kAttention || op->def == &ops::kLatentAttention)) {
        found.attentions.push_back(op);
      } else {
        bool keeps = false;
        for (size_t i = 0; op != nullptr && i < op->inputs.size(); ++i) {
          if (!keeps_columns(*op, op->inputs[i])) continue;
          keeps = true;
          if (seen.insert(op->inputs[i]).second) open.push_back(op->inputs[i]);
        }
        found.other |= !keeps;
        if (keeps) found.between.push_back(op);
      }
    }
    return found;
  }

  // Whether an op works on a rank's columns alone.
  bool passes(const Op& op, const Placement& columns) const {
    std::vector<Placement> placed;
    for (ValueId id : op.inputs) {
      placed.push_back(keeps_columns(op, id) ? columns : Placement::replicated());
    }
    return op.def->shard(op.attrs, program_.input_types(op), placed, plan_.P).inputs == placed;
  }

  // Weights with several readers stay whole: cuts may differ. Divided weights stay divided.
  bool divides(ValueId weight) const {
    const Value& value = program_.value(weight);
    return value.kind == ValueKind::weight && readers_[weight] == 1 &&
           !plan_.pinned.contains(value.name);
  }
  void pin(ValueId weight, Placement placement) {
    plan_.pinned.emplace(program_.value(weight).name, std::move(placement));
  }
  void pin_rows(const Product& product, const std::vector<Range>& parts) {
    const bool biased = product.bias() != kNoValue;
    if (!divides(product.w()) || (biased && !divides(product.bias()))) return;
    pin(product.w(), Placement::shard(0, parts));
    if (biased) pin(product.bias(), Placement::shard(0, parts));
  }
  void pin_columns(const Product& product, const std::vector<Range>& parts) {
    if (divides(product.w())) pin(product.w(), Placement::shard(1, parts));
  }

  // Makers of q, k or v [T, H * D].
  void divide_projection(ValueId id, const std::vector<Range>& parts, int64_t D) {
    const Origin from = origin(id);
    if (from.other || !from.attentions.empty()) return;
    const Placement columns = Placement::shard(1, parts);
    const bool passed =
        std::ranges::all_of(from.between, [&](const Op* op) { return passes(*op, columns); });
    // A norm over all heads wants it gathered: each column is made once.
    std::vector<Range> once;
    const int64_t width = program_.value(id).type.shape[1], unit = width / D < plan_.P ? 1 : D;
    for (int r = 0; r < plan_.P; ++r) once.push_back(even_part(width / unit, plan_.P, r));
    once = scale_parts(once, unit);
    for (const Product& product : from.products) pin_rows(product, passed ? parts : once);
  }

  void divide_heads(const Op& op) {
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    const int64_t D = attrs.head_dim;
    const int64_t heads = program_.value(op.inputs[0]).type.shape[1] / D;
    std::vector<const std::pair<Product, Origin>*> readers;
    int64_t granule = 1;
    for (const auto& join : joins_) {
      if (join.second.attentions != std::vector{&op}) continue;
      readers.push_back(&join);
      const DType dtype = program_.value(join.first.w()).type.dtype;
      granule = std::lcm(granule, units_per_cut(dtype, D));
    }
    const std::vector<Range> q = divide(heads, granule, plan_.P, "query heads");
    const std::vector<Range> columns = scale_parts(q, D);
    std::vector<Range> kv;
    for (const Range& part : q) {
      kv.push_back({part.begin / attrs.group, (part.end - 1) / attrs.group + 1});
    }
    for (const auto* reader : readers) {
      pin_columns(reader->first, columns);
      for (const Product& gate : reader->second.products) pin_rows(gate, columns);
    }
    divide_projection(op.inputs[0], columns, D);
    plan_.queries[program_.value(op.inputs[1]).name] = Placement::shard(1, columns);
    for (const Op& append : program_.ops) {
      if (append.def != &ops::kKvAppend || append.inputs[3] != op.inputs[1]) continue;
      for (size_t i : {0u, 1u}) divide_projection(append.inputs[i], scale_parts(kv, D), D);
    }
    for (size_t i : {1u, 2u}) pin(op.inputs[i], Placement::shard(2, kv));
  }

  // Divides heads with their parts of k_b and v_b; latents, read by all heads, stay whole.
  void divide_latent_heads(const Op& op) {
    const ValueId k_b = op.inputs[2], v_b = op.inputs[3];
    const int64_t heads = program_.value(k_b).type.shape[0], Dv = program_.value(v_b).type.shape[1];
    int64_t granule = 1;
    for (const auto& join : joins_) {
      if (join.second.attentions != std::vector{&op}) continue;
      granule = std::lcm(granule, units_per_cut(program_.value(join.first.w()).type.dtype, Dv));
    }
    const std::vector<Range> parts = divide(heads, granule, plan_.P, "query heads");
    for (const auto& join : joins_) {
      if (join.second.attentions == std::vector{&op})
        pin_columns(join.first, scale_parts(parts, Dv));
    }
    const int64_t D = program_.value(op.inputs[0]).type.shape[1] / heads;
    divide_projection(op.inputs[0], scale_parts(parts, D), D);
    pin(k_b, Placement::shard(0, parts));
    pin(v_b, Placement::shard(0, parts));
  }

  void divide_head(ValueId logits) {
    const Origin from = origin(logits);
    if (from.other || !from.attentions.empty()) return;
    for (const Product& head : from.products) {
      const int64_t rows = program_.value(head.w()).type.shape[0];
      pin_rows(head, divide(rows, 1, plan_.P, "vocabulary rows"));
    }
  }

  // Divides products with a product as only reader: rows of the first meet columns of the second.
  void divide_ffn(const Product& down, const Origin& x) {
    const Value& w = program_.value(down.w());
    const auto whole = [&](const Product& product) { return divides(product.w()); };
    if (!divides(down.w()) || !std::ranges::all_of(x.products, whole)) return;
    const int64_t out = w.type.shape[0], in = w.type.shape[1],
                  block = info(w.type.dtype).block_elems;
    if (in < out && ceil_div(in, block) < plan_.P) return;  // a bottleneck
    const std::vector<Range> parts = divide(in, block, plan_.P, "feed-forward columns");
    pin_columns(down, parts);
    for (const Product& product : x.products) pin_rows(product, parts);
  }

  // Divides every expert's width: rows in gate and up meet columns in down.
  void divide_experts(const Op& down) {
    const Op* gated = producer_[down.inputs[0]];
    if (gated == nullptr || gated->def != &ops::kExpertGated) return;
    const ValueType& w = program_.value(down.inputs[2]).type;
    const std::vector<Range> parts =
        divide(w.shape[2], info(w.dtype).block_elems, plan_.P, "columns of an expert");
    pin(down.inputs[2], Placement::shard(2, parts));
    for (size_t i = 3; i < gated->inputs.size(); ++i) {
      if (gated->inputs[i] != kNoValue) pin(gated->inputs[i], Placement::shard(1, parts));
    }
  }

  const Program& program_;
  const std::vector<int> readers_;
  std::vector<const Op*> producer_;                // [values]
  std::vector<std::pair<Product, Origin>> joins_;  // linears with no other reader
  LayoutPlan plan_;
};

}  // namespace

LayoutPlan tensor_parallel(const Program& program, int P, bool whole_experts) {
  return P == 1 ? LayoutPlan{} : WeightDivision(program, P).run(whole_experts);
}

}  // namespace braid
