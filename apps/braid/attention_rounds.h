#pragma once

#include "braid/attention_modes.h"

// Whole rounds of the attention kernel's tiles.
namespace braid::app {

// Tiles that the attention kernel computes at once on a GPU.
struct KernelRounds {
  SequenceAttention::Rounds beside;  // of a call beside which one-sided ops may run
  int64_t alone = 0;                 // tiles of any other
};

// Of a call over the queries and keys of one class of torus attention; nothing where its tiles have
// no such rounds.
KernelRounds rounds_of(const AttentionBench& bench, const SequenceMesh& mesh, int device);

// Seconds of rank 0's attention launches at about an H200's speed, each of which ends with a whole
// round, and what a launch and a carried state cost beside that.
double rounded_seconds(const ModePlan& plan, const KernelRounds& rounds);

}  // namespace braid::app
