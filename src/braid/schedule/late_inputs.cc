#include "braid/schedule/late_inputs.h"

#include <algorithm>

#include "braid/schedule/dependencies.h"

namespace braid {
namespace {

const Op& op_of(const Program& program, const Launch& launch) {
  return program.ops[launch.op];
}

bool has_early(const Op& op) {
  return op.def->phases != nullptr && op.def->phases->has_early(op.attrs);
}

// The stage that all that `pull` brings to `op` is of; -1 where that is not one, or not known.
int stage_brought(const Op& op, const Op& pull) {
  int stage = -1;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    for (size_t k = 0; k < pull.inputs.size(); ++k) {
      if (op.inputs[i] == kNoValue || op.inputs[i] != pull.inputs[k]) continue;
      if (mutates(op, i)) return -1;
      if (!mutates(pull, k)) continue;
      const int its = first_stage(op, i);
      if (its < 0 || (stage >= 0 && stage != its)) return -1;
      stage = its;
    }
  }
  return stage;
}

}  // namespace

bool takes_early(const Program& program, const Launch& launch, const Launch& beside) {
  const Op &taker = op_of(program, launch), &op = op_of(program, beside);
  const bool alike = launch.stream != beside.stream && launch.micro_batch == beside.micro_batch &&
                     launch.num_micro_batches == beside.num_micro_batches &&
                     launch.replacement < 0 && beside.replacement < 0;
  return alike && op.def->phases != nullptr && op.def->phases->early_for(op, taker);
}

int early_launch(const Program& program, std::span<const Launch> launches, const Launch& launch,
                 std::span<const int> needs) {
  int found = -1;
  for (int need : needs) {
    const Launch& other = launches[need];
    if (other.late.empty() || !has_early(op_of(program, other)) ||
        !takes_early(program, launch, other)) {
      continue;
    }
    if (found >= 0 && found != need) return -1;
    found = need;
  }
  return found;
}

int last_stage(const Op& op) {
  return op.def->phases == nullptr ? 0 : op.def->phases->last(op.attrs);
}

int first_stage(const Op& op, size_t index) {
  return op.def->phases == nullptr ? 0 : op.def->phases->of_input(op.attrs, index);
}

std::vector<int> late_launches(const Program& program, std::span<const Launch> launches,
                               const Launch& launch, std::span<const int> needs) {
  const Op& op = op_of(program, launch);
  if (launch.replacement >= 0) return {};
  std::vector<int> late(static_cast<size_t>(last_stage(op)), -1);
  if (late.empty()) return {};
  for (int need : needs) {
    const Launch& pull = launches[need];
    if (op_of(program, pull).def->remote != RemoteUse::pulls) continue;
    const int stage = stage_brought(op, op_of(program, pull));
    if (stage == 0) continue;
    const bool alike = stage > 0 && pull.stream != launch.stream &&
                       pull.micro_batch == launch.micro_batch &&
                       pull.num_micro_batches == launch.num_micro_batches;
    if (!alike) return {};
    int& brings = late[static_cast<size_t>(stage) - 1];
    if (brings >= 0 && brings != need) return {};
    brings = need;
  }
  for (size_t s = 0; s < late.size(); ++s) {
    if (late[s] < 0 || (s > 0 && late[s] < late[s - 1])) return {};
    if (launches[late[s]].stream != launches[late[0]].stream) {
      return {};
    }
    const auto brought = [&](const Launch& other) {
      return std::ranges::count(other.late, late[s]) > 0;
    };
    if (std::ranges::any_of(launches, brought)) return {};
  }
  return late;
}

std::vector<int> before_late(const Program& program, std::span<const Launch> launches,
                             std::span<const int> late) {
  std::vector<int> before;
  if (late.empty()) return before;
  const auto add = [&](int launch) {
    const bool known = std::ranges::count(late, launch) + std::ranges::count(before, launch) > 0;
    if (!known) before.push_back(launch);
  };
  const Stream stream = launches[late.back()].stream;
  for (int i = late.back(); i >= 0; --i) {
    const Launch& launch = launches[i];
    if (launch.stream != stream) continue;
    if (op_of(program, launch).def->remote != RemoteUse::pulls) {
      add(i);
      break;
    }
    for (int awaited : launch.waits) add(awaited);
  }
  return before;
}

StageShares stage_shares(const Op& op, const Launch& launch) {
  StageShares shares;
  if (launch.late.empty()) return shares;
  const PhaseTraits& phases = *op.def->phases;
  const size_t stages = launch.late.size() + 1;  // a rank may have no rows of the last ones
  shares.rest = phases.work(op.attrs, false);
  shares.rest.resize(stages);
  double all = 0;
  for (double work : shares.rest) all += work;
  if (all == 0) shares.rest[0] = all = 1;
  if (has_early(op)) {
    shares.early = phases.work(op.attrs, true);
    shares.early.resize(stages);
  }
  for (size_t s = 0; s < stages; ++s) {
    if (!shares.early.empty()) shares.rest[s] -= shares.early[s];
    if (!shares.early.empty()) shares.early[s] /= all;
    shares.rest[s] /= all;
  }
  return shares;
}

}  // namespace braid
