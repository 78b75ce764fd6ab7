#include "braid/engine/expert_load.h"

#include <algorithm>
#include <set>

#include "braid/job/packing.h"
#include "braid/ops/expert_exchange.h"

namespace braid {
namespace {

// begin [H + 1] of an op that sorts expert rows.
ValueId begins_of(const Op& op) {
  return op.outputs[3];
}

int64_t first_expert(const Program& program, const Op& op) {
  if (op.def == &ops::kArrange) return op.attrs.as<ops::ExchangeAttrs>().held().begin;
  const int64_t E = program.value(op.inputs[0]).type.shape[1];
  return ops::held_experts(op.attrs.as<ops::RouteAttrs>(), E).begin;
}

// "layers.3" of "layers.3.mlp.experts".
std::string layer_of(const Op& op) {
  return op.scope.substr(0, op.scope.find('.', op.scope.find('.') + 1));
}

bool counts(const Op& op) {
  return op.def->writes_extent == BatchAxis::expert_row;
}

}  // namespace

void keep_expert_rows(Program& program) {
  for (const Op& op : program.ops) {
    if (counts(op)) program.outputs.push_back(begins_of(op));
  }
}

std::vector<ExpertRows> read_expert_rows(Executor& executor) {
  const Program& program = executor.program();
  const std::vector<Launch>& launches = executor.schedule().launches;
  std::vector<ExpertRows> all;
  for (size_t i = 0; i < launches.size(); ++i) {
    const Op& op = executor.schedule().op(program, launches[i]);
    if (!counts(op)) continue;
    const std::vector<int32_t> begin = executor.host_words(begins_of(op), launches[i].micro_batch);
    ExpertRows& own = all.emplace_back();
    own.launch = static_cast<int>(i);
    own.first = first_expert(program, op);
    for (size_t e = 1; e < begin.size(); ++e) own.rows.push_back(begin[e] - begin[e - 1]);
  }
  return all;
}

void add_expert_rows(const Program& program, const Schedule& schedule,
                     std::span<const std::vector<ExpertRows>> ranks, int groups,
                     std::vector<ExpertLoad>& loads) {
  const int of_group = static_cast<int>(ranks.size()) / groups;
  for (size_t i = 0; i < ranks[0].size(); ++i) {
    const Op& op = schedule.op(program, schedule.launches[ranks[0][i].launch]);
    const bool arrived = op.def == &ops::kArrange;  // rows of all ranks
    const bool divided = program.value(op.inputs[0]).type.axis == BatchAxis::shard;
    auto load = std::ranges::find(loads, layer_of(op), &ExpertLoad::layer);
    if (load == loads.end()) load = loads.insert(loads.end(), {layer_of(op), {}});
    std::set<std::pair<int, int64_t>> counted;  // whose tokens, and the first expert
    for (size_t r = 0; r < ranks.size(); ++r) {
      const ExpertRows& own = ranks[r][i];
      const int rank = static_cast<int>(r), tokens = divided ? rank : rank / of_group;
      if (own.rows.empty() || !counted.insert({arrived ? 0 : tokens, own.first}).second) continue;
      const size_t end = own.first + own.rows.size();
      if (load->rows.size() < end) load->rows.resize(end);
      for (size_t e = 0; e < own.rows.size(); ++e) load->rows[own.first + e] += own.rows[e];
    }
  }
}

std::string pack_expert_rows(std::span<const std::vector<ExpertRows>> ranks) {
  job::Packer packer;
  for (const std::vector<ExpertRows>& rank : ranks) {
    packer.add(std::ssize(rank));
    for (const ExpertRows& own : rank) {
      packer.add(int64_t{own.launch}).add(own.first).add(std::span<const int32_t>(own.rows));
    }
  }
  return packer.bytes();
}

void unpack_expert_rows(const std::string& bytes, std::span<std::vector<ExpertRows>> ranks) {
  job::Unpacker fields(bytes);
  for (std::vector<ExpertRows>& rank : ranks) {
    rank.resize(fields.number());
    for (ExpertRows& own : rank) {
      own.launch = static_cast<int>(fields.number());
      own.first = fields.number();
      fields.numbers(own.rows);
    }
  }
}

}  // namespace braid
