#pragma once

#include <span>
#include <string>

#include "braid/schedule/trace.h"

namespace braid {

// Lanes of spans that are no launches, below a title: steps that a device ran by itself.
struct SpanLanes {
  struct Lane {
    std::string name;
    std::span<const TraceSpan> spans;
  };
  std::string title;
  std::vector<Lane> lanes;
};

// Timelines as one SVG picture: a legend, then for each timeline a title and a lane for every rank
// and stream in use, on one scale of time. Launches are boxes in the color of their kind, with what
// they are as tooltips. Neighbouring ranks that run alike share their lanes. Spans come last.
std::string timeline_svg(std::span<const Timeline> timelines,
                         std::span<const SpanLanes> spans = {});

}  // namespace braid
