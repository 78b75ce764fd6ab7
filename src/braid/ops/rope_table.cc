#include "braid/ops/rope_table.h"

#include <algorithm>
#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<RopeTableAttrs>();
  require_rank("rope_table", "x", in[0], 2);
  require_float("rope_table", "x", in[0]);
  require_rank("rope_table", "table", in[1], 2);
  require_dtype("rope_table", "table", in[1], DType::f32);
  const int64_t rotary = in[1].shape[1];
  if (a.head_dim < 1 || in[0].shape[1] % a.head_dim != 0 || rotary > a.head_dim ||
      rotary % 2 != 0) {
    fail(ErrorCode::kInvalidArgument, "rope_table: x is {} with heads of {}, table is {}",
         to_string(in[0]), a.head_dim, to_string(in[1]));
  }
  if (a.batch < 1 || in[0].shape[0] % a.batch != 0 || a.first < 0 ||
      a.first + in[1].shape[0] > in[0].shape[0] / a.batch) {
    fail(ErrorCode::kInvalidArgument,
         "rope_table: x is {} in {} sequences, table is {} from row {}", to_string(in[0]), a.batch,
         to_string(in[1]), a.first);
  }
  return {in[0]};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 3);
}

// Table rows for a rank's rows of x, and the rank's first rotated row.
struct LocalRows {
  Range table;
  int64_t first = 0;
};
LocalRows local_rows(const RopeTableAttrs& a, int64_t table_rows, const Range& own) {
  const int64_t begin = std::clamp(a.first, own.begin, own.end);
  const int64_t end = std::clamp(a.first + table_rows, begin, own.end);
  const int64_t from = std::clamp<int64_t>(begin - a.first, 0, table_rows);
  return {{from, from + (end - begin)}, begin - own.begin};
}

// Heads are independent. In a single sequence rows are, too, beside their table rows.
ShardRule shard(const Attrs& attrs, TypeList in, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(2, 1);
  const auto& a = attrs.as<RopeTableAttrs>();
  if (placed[0].is_shard(0) && a.batch == 1) {
    std::vector<Range> table;
    for (const Range& own : placed[0].parts) {
      table.push_back(local_rows(a, in[1].shape[0], own).table);
    }
    return {{placed[0], Placement::shard(0, std::move(table))}, {placed[0]}};
  }
  if (!placed[0].is_shard(1)) return rule;
  for (const Range& part : placed[0].parts) {
    if (part.begin % a.head_dim != 0 || part.end % a.head_dim != 0) return rule;
  }
  rule.inputs[0] = rule.outputs[0] = placed[0];
  return rule;
}

Attrs localize(const Attrs& attrs, TypeList in, const ShardRule& rule, int rank) {
  auto local = attrs.as<RopeTableAttrs>();
  if (rule.inputs[0].is_shard(0)) {
    const Range& own = rule.inputs[0].parts[rank];
    local.first = local_rows(local, in[1].shape[0], own).first;
  }
  return Attrs::of(local);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<RopeTableAttrs>();
  const int64_t L = call.in[0].shape[0] / a.batch;
  const int64_t rotary = call.in[1].cols();
  for (int64_t t = 0; t < call.in[0].shape[0]; ++t) {
    std::vector<float> x = load_row(call.in[0], t);
    const int64_t at = (t % L) - a.first;
    if (at >= 0 && at < call.in[1].shape[0]) {
      const float* table = call.in[1].row_as<const float>(at);
      for (int64_t head = 0; head < std::ssize(x); head += a.head_dim) {
        for (int64_t i = 0; i < rotary; i += 2) {
          const float even = x[head + i], odd = x[head + i + 1];
          x[head + i] = even * table[i] - odd * table[i + 1];
          x[head + i + 1] = odd * table[i] + even * table[i + 1];
        }
      }
    }
    store_row(call.out[0], t, x);
  }
}

}  // namespace

const OpDef kRopeTable = {.kind = "rope_table",
                          .infer = infer,
                          .mutated_inputs = {},
                          .cost = cost,
                          .shard = shard,
                          .localize = localize,
                          .reference = reference};

ValueId rope_table(Builder& b, ValueId x, ValueId table, const RopeTableAttrs& attrs) {
  return b.op1(kRopeTable, Attrs::of(attrs), {x, table});
}

std::vector<float> make_rope_table(const std::vector<RopeAxis>& axes, double theta) {
  const size_t rows = axes.at(0).positions.size();
  std::vector<float> table;
  for (size_t r = 0; r < rows; ++r) {
    for (const RopeAxis& axis : axes) {
      for (int64_t i = 0; i < axis.dim; i += 2) {
        const double frequency =
            1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(axis.dim));
        const double angle = axis.positions.at(r) * frequency;
        table.push_back(static_cast<float>(std::cos(angle)));
        table.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  return table;
}

}  // namespace braid::ops
