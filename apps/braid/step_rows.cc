#include "braid/step_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::app {

std::vector<SequenceMesh> meshes_of(const StepRow& row, Degrees degrees, const StepFamily& family,
                                    size_t i, const SpRequest& request, const Topology& topology,
                                    const StepPrices* prices) {
  std::vector<SequenceMesh> all;
  if (degrees != Degrees::rule) {
    all = sequence_meshes(row.mode, topology, family.heads, request);
    if (degrees == Degrees::each) return all;
  }
  if (prices == nullptr || all.size() < 2) {
    return {sequence_mesh(row.mode, topology, family.heads, request)};
  }
  const Program part = family.part(i);
  std::vector<double> seconds;
  for (const SequenceMesh& mesh : all) {
    seconds.push_back(prices->seconds(prices->plan(part, family.rows, mesh, row.schedule)));
  }
  return {all[static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin())]};
}

bool is_impossible(const StepBenchOptions& options, const Error& error) {
  const bool all = options.figure != 0 || options.modes == "all";
  return all &&
         (error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kUnsupported);
}

std::string bound_line(const std::string& size, double alone_ms, bool simulated, int ranks,
                       double first_ms, const std::string& first, double most) {
  if (first_ms <= 0 || alone_ms <= 0) return "";
  const double least = alone_ms / ranks;
  return fmt::format(
      "{}: {:.2f} ms is one rank's {}time over {}, so that nothing can be more than {:.2f}x as "
      "fast as {}; torus is at most {:.2f}x.\n",
      size, least, simulated ? "simulated " : "", ranks, first_ms / least, first, most);
}

std::string paper_line(int number, const Figure& figure) {
  return fmt::format("Figure {} of StreamFusion shows {}; there, {}.\n", number, figure.shows,
                     figure.paper);
}

}  // namespace braid::app
