#pragma once

#include "braid/attention_modes.h"

// Whole rounds of the attention kernel's tiles.
namespace braid::app {

// What the kernel computes at once, on `device`, of a call over the queries and keys of one class
// of torus attention, beside one-sided ops; nothing where its tiles have no such rounds.
SequenceAttention::Rounds rounds_of(const AttentionBench& bench, const SequenceMesh& mesh,
                                    int device);

// Seconds of rank 0's attention launches at about an H200's speed, each of which ends with a whole
// round.
double rounded_seconds(const ModePlan& plan, const SequenceAttention::Rounds& rounds);

}  // namespace braid::app
