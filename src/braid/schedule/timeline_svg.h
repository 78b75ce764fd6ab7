#pragma once

#include <span>
#include <string>

#include "braid/schedule/trace.h"

namespace braid {

// Timelines as one SVG picture: a legend, then for each timeline a title and a lane for every rank
// and stream in use, on one scale of time. Launches are boxes in the color of their kind, with what
// they are as tooltips. Neighbouring ranks that run alike share their lanes.
std::string timeline_svg(std::span<const Timeline> timelines);

}  // namespace braid
