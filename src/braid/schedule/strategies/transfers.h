#pragma once

#include "braid/schedule/op_scheduler.h"

namespace braid {

// Makes the one-sided transfers of sequence-parallel attention tasks of their own.
inline void split_transfers(PartitionRules& rules) {
  rules.mark("sp.ring");
  rules.mark("sp.link");
}

// Where communication runs beside computation: inside a ring group on the side stream, so that it
// does not queue behind what goes further; all other on the comm stream.
inline Stream stream_of(const Task& task) {
  if (task.is("sp.ring")) return Stream::side;
  return task.communicates() || task.is("sp.link") ? Stream::comm : Stream::compute;
}

}  // namespace braid
