#pragma once

#include <span>
#include <vector>

#include "braid/program/program.h"
#include "braid/schedule/schedule.h"

namespace braid {

// What a launch may wait for while it runs (Launch::late): of `needs`, the pulls that bring the
// later stages of its inputs, in order. All of them or none: none where they do not run one after
// the other on another stream than the launch's, bring anything else that it touches or inputs of
// which this rank reads no rows (others may), or are late for another launch. `launches` are those
// before it.
std::vector<int> late_launches(const Program& program, std::span<const Launch> launches,
                               const Launch& launch, std::span<const int> needs);

// The launches that have to end before these pulls may run: what they wait for, and what is before
// them on their stream; of other pulls there what those wait for, since pulls take no SM from
// anybody.
std::vector<int> before_late(const Program& program, std::span<const Launch> launches,
                             std::span<const int> late);

// The last stage of an op's inputs on this rank; 0: all are of one.
int last_stage(const Op& op);

// The stage in which an op first accesses its input at `index`; -1: this rank accesses none of it.
int first_stage(const Op& op, size_t index);

// Whether `launch`, of the same micro-batch as `beside` and on another stream, takes nothing of it
// that is not early.
bool takes_early(const Program& program, const Launch& launch, const Launch& beside);
// The launch with late inputs, one of `needs`, of which the launch takes nothing else
// (Launch::early); -1: there is none.
int early_launch(const Program& program, std::span<const Launch> launches, const Launch& launch,
                 std::span<const int> needs);

// How a launch's work divides over the stages of its inputs, from what is there when it begins on:
// 1 in all. Of what is there, early work is done first. Both are empty where nothing is late.
struct StageShares {
  std::vector<double> early;  // [late + 1], or none
  std::vector<double> rest;   // [late + 1]
};
StageShares stage_shares(const Op& op, const Launch& launch);

}  // namespace braid
