#include "braid/parallel/tensor_parallel.h"

#include <numeric>
#include <unordered_map>

#include "braid/ops/attention.h"

namespace braid {
namespace {

// The smallest number of units of `unit` columns that make whole blocks of the dtype.
int64_t units_per_cut(DType dtype, int64_t unit) {
  return std::lcm<int64_t>(unit, info(dtype).block_elems) / unit;
}

// [0, n) units over P ranks, cut at multiples of `granule` units (the last part takes what is
// over).
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

class Planner {
 public:
  Planner(const Program& program, int P) : program_(program) {
    plan_.P = P;
    for (const Value& value : program.values) {
      if (!value.name.empty()) by_name_.emplace(value.name, &value);
    }
  }

  LayoutPlan run() {
    for (const Op& op : program_.ops) {
      if (op.def == &ops::kAttention) divide_heads(op);
    }
    for (const Value& value : program_.values) {
      if (value.kind == ValueKind::weight && value.name.ends_with(".mlp.down")) {
        divide_ffn(value);
      }
    }
    if (const Value* head = find("lm_head")) {
      pin("lm_head",
          Placement::shard(0, divide(head->type.shape[0], 1, plan_.P, "vocabulary rows")));
    }
    return plan_;
  }

 private:
  const Value* find(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }
  void pin(const std::string& name, Placement placement) {
    if (find(name)) plan_.pinned[name] = std::move(placement);
  }

  void divide_heads(const Op& op) {
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    const int64_t D = attrs.head_dim;
    const int64_t heads = program_.value(op.inputs[0]).type.shape[1] / D;
    const Value* o = find(op.scope + ".o");
    BRAID_CHECK(o != nullptr, "{} has no output projection", op.scope);
    const int64_t granule = units_per_cut(o->type.dtype, D);
    const std::vector<Range> q = divide(heads, granule, plan_.P, "query heads");
    std::vector<Range> kv;
    for (const Range& part : q) {
      kv.push_back({part.begin / attrs.group, (part.end - 1) / attrs.group + 1});
    }
    for (const char* suffix : {"", ".bias"}) {
      pin(op.scope + ".q" + suffix, Placement::shard(0, scale_parts(q, D)));
      pin(op.scope + ".k" + suffix, Placement::shard(0, scale_parts(kv, D)));
      pin(op.scope + ".v" + suffix, Placement::shard(0, scale_parts(kv, D)));
    }
    pin(op.scope + ".o", Placement::shard(1, scale_parts(q, D)));
    for (int i : {1, 2}) {
      pin(program_.value(op.inputs[static_cast<size_t>(i)]).name, Placement::shard(2, kv));
    }
  }

  void divide_ffn(const Value& down) {
    const std::string scope = down.name.substr(0, down.name.size() - std::string(".down").size());
    const std::vector<Range> parts = divide(down.type.shape[1], info(down.type.dtype).block_elems,
                                            plan_.P, "feed-forward columns");
    for (const char* name : {".gate", ".up", ".gate.bias", ".up.bias"}) {
      pin(scope + name, Placement::shard(0, parts));
    }
    pin(down.name, Placement::shard(1, parts));
  }

  const Program& program_;
  std::unordered_map<std::string_view, const Value*> by_name_;
  LayoutPlan plan_;
};

}  // namespace

LayoutPlan tensor_parallel(const Program& program, int P) {
  return P == 1 ? LayoutPlan{} : Planner(program, P).run();
}

}  // namespace braid
