#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braid/engine/forward_plans.h"
#include "braid/engine/mesh_choice.h"
#include "braid/schedule/profile.h"

namespace braid {

// Where a step's text tokens are: in even shares of the sequence [text, image], or whole on each
// rank beside an even share of the image. Whole text takes each rank's time in all linears; its
// keys are on every rank, and its queries' results come to every rank.
enum class TextRows : uint8_t { split, replicated };
inline constexpr std::array kTextRows = {TextRows::split, TextRows::replicated};
std::string_view to_string(TextRows rows);

// A step as one device computes it, or a part that costs ranks alike, with the inputs whose rows
// ranks divide, as in row_parallel.
struct StepForm {
  TextRows text = TextRows::split;
  Program program;
  std::vector<std::vector<std::string>> parts;
  int runs = 1;          // of the Program in a step
  std::string schedule;  // runs by this strategy alone; empty: as the request says
  std::string name;      // among several forms, in `priced`: "as one batch"
};

// A user's request for ranks that divide the rows of a network's steps.
struct RankRequest {
  SequenceParallel sp;  // without a mode: the fastest mode in simulation
  Topology topology;
  std::string schedule = "sequence_parallel";  // a strategy's name, or auto: the fastest
  std::optional<Profile> profile;              // prices modes and strategies; `auto` needs it
  int64_t room = 0;  // bytes of a rank's values; forms beyond are taken if no other fits. 0: any
};

// How ranks divide a step, and when its launches run.
struct StepChoice {
  SequenceMesh mesh;
  std::string schedule;
  TextRows text = TextRows::split;
  std::vector<std::string> priced;  // a line for each candidate of `auto`
  double seconds = 0;  // simulated seconds of the priced part of a step; 0: nothing was priced
  size_t form = 0;     // the taken form's index
  int64_t beyond = 0;  // bytes of the values, if they exceed the room
};

// The Program for a rank alone (an empty layout) or divided over ranks by `layout`: lowered, fused,
// scheduled and verified. `catalogs`: each rank's.
PlannedForward plan_network(const Program& program, const LayoutPlan& layout,
                            const std::vector<const KernelCatalog*>& catalogs,
                            const Topology& topology, const OpScheduler& strategy);

// Simulated seconds of such a plan.
double network_seconds(const Plan& planned, const CostModel& cost);

// Of several `forms` the fastest in simulation that fits the request's room. Fails with
// kInvalidArgument without a legal mesh, or for a choice without a profile. Kernels wait inside
// like those of `like` (null: none).
StepChoice choose_step(const RankRequest& request, int64_t heads, std::span<const StepForm> forms,
                       const KernelCatalog* like);

}  // namespace braid
