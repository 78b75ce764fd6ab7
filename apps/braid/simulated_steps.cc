#include "braid/simulated_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/engine/diffusion/cfg_groups.h"
#include "braid/step_rows.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

using Json = nlohmann::ordered_json;

struct Priced {
  size_t row = 0;
  SpDegrees degrees;
  double ms = 0;
  double values_gb = 0;
};

struct SimulatedSize {
  double alone_ms = 0;
  std::vector<Priced> steps;

  // The first row's least time; 0: the row is impossible.
  double first_ms() const {
    return least_ms([](const Priced& p) { return p.row == 0; });
  }
  template <class Wanted>
  double least_ms(Wanted&& wanted) const {
    double least = 0;
    for (const Priced& p : steps) {
      if (wanted(p) && (least == 0 || p.ms < least)) least = p.ms;
    }
    return least;
  }
};

class Simulation {
 public:
  Simulation(const StepFamily& family, const StepBenchOptions& options, const BenchPlace& place)
      : family_(family),
        options_(options),
        place_(place),
        groups_(std::max(1, options.cfg_ranks)),
        passes_(options.cfg_ranks == 0 ? 1 : cfg_passes(groups_)),
        kernels_(place.kernels()),
        prices_(place.profile().value(), cfg_group(place.topology(), groups_), kernels_.get()) {
    if (options.figure != 0) {
      figure_ = paper_figure(options.figure);
      return;
    }
    figure_.rows = rows_of_modes(options.modes, options.schedule);
    figure_.degrees = Degrees::best;
  }

  void run() {
    for (size_t i = 0; i < family_.sizes.size(); ++i) simulate(i);
  }

  std::string table() const {
    const std::string& first = figure_.rows.empty() ? kOne : figure_.rows[0].label;
    std::string out = fmt::format(
        "{}\n| size | ranks | torus x ulysses x ring | simulated step ms | times one rank | times "
        "{} | values GB |\n|---|---|---|---:|---:|---:|---:|\n",
        family_.title, first);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const SimulatedSize& size = sizes_[i];
      out += fmt::format("| {} | {} | 1 x 1 x 1 | {:.2f} | 1.00 | - | {:.2f} |\n", family_.sizes[i],
                         kOne, size.alone_ms, alone_gb_[i]);
      for (const Priced& p : size.steps) {
        const double of_first = size.first_ms() / p.ms;
        out += fmt::format("| {} | {} | {} x {} x {} | {:.2f} | {:.2f} | {} | {:.2f} |\n",
                           family_.sizes[i], figure_.rows[p.row].label, p.degrees.torus,
                           p.degrees.ulysses, p.degrees.ring, p.ms, size.alone_ms / p.ms,
                           of_first > 0 ? fmt::format("{:.2f}x", of_first) : "-", p.values_gb);
      }
    }
    if (options_.figure != 0) out += paper_line(options_.figure, figure_) + gains_text();
    for (size_t i = 0; i < sizes_.size() && place_.ranks() > 1; ++i) {
      out += bound_line(family_.sizes[i], sizes_[i].alone_ms, true, place_.ranks(),
                        sizes_[i].first_ms(), first, most_[i]);
    }
    for (const std::string& line : refused_) out += line + "\n";
    return figure_.rows.empty() ? out : out + kTwoSided + "\n";
  }

  Json json() const {
    const Topology& topology = place_.topology();
    Json out = {{"title", family_.title},          {"profile", place_.profile()->name},
                {"racks", topology.racks},         {"machines", topology.machines},
                {"devices", topology.devices},     {"ranks", place_.ranks()},
                {"link_gbps", options_.link_gbps}, {"heads", family_.heads}};
    out["sizes"] = Json::array();
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const SimulatedSize& size = sizes_[i];
      Json rows = Json::array();
      for (const Priced& p : size.steps) {
        const StepRow& row = figure_.rows[p.row];
        rows.push_back({{"label", row.label},
                        {"mode", to_string(row.mode)},
                        {"schedule", row.schedule},
                        {"torus", p.degrees.torus},
                        {"ulysses", p.degrees.ulysses},
                        {"ring", p.degrees.ring},
                        {"ms", p.ms},
                        {"values_gb", p.values_gb}});
      }
      out["sizes"].push_back({{"size", family_.sizes[i]},
                              {"one_rank_ms", size.alone_ms},
                              {"bound_ms", size.alone_ms / place_.ranks()},
                              {"rows", std::move(rows)}});
    }
    if (options_.figure != 0) {
      out["figure"] = {{"number", options_.figure},
                       {"shows", figure_.shows},
                       {"paper", figure_.paper},
                       {"here", Json::array()}};
      for (const Gain& gain : gains()) {
        out["figure"]["here"].push_back({{"row", gain.label},
                                         {"over", figure_.rows[0].label},
                                         {"mean", gain.mean},
                                         {"most", gain.most}});
      }
    }
    out["impossible"] = refused_;
    out["remarks"] = {kTwoSided};
    return out;
  }

 private:
  static inline const std::string kOne = "one rank";
  static constexpr const char* kTwoSided =
      "USP over NCCL, whose ranks meet in every exchange, is not simulated: plans have one-sided "
      "transfers alone. With nothing hidden usp exposes all of its transfers.";

  // A row's gains over the first row, over sizes: at its best, or with Degrees::each for each ring
  // degree, as the paper compares.
  struct Gain {
    std::string label;
    double mean = 0, most = 0;
  };

  void simulate(size_t i) {
    const PlannedForward alone = prices_.plan(family_.step(i));
    SimulatedSize& size = sizes_.emplace_back();
    size.alone_ms = ms_of(alone) * groups_;  // every pass, one after another
    alone_gb_.push_back(arena_gb(alone));
    double torus = 0;
    for (size_t row = 0; row < figure_.rows.size(); ++row) {
      try {
        for (const SequenceMesh& mesh :
             meshes_of(figure_.rows[row], figure_.degrees, family_, i, options_.degrees.request(),
                       prices_.topology(), &prices_)) {
          const PlannedForward planned =
              prices_.plan(family_.step(i), family_.rows, mesh, figure_.rows[row].schedule);
          size.steps.push_back({row, mesh.degrees, ms_of(planned), arena_gb(planned)});
          const bool is_torus = figure_.rows[row].mode == SpMode::torus;
          if (is_torus) torus = std::max(torus, size.first_ms() / size.steps.back().ms);
        }
      } catch (const Error& error) {
        if (!is_impossible(options_, error)) throw;
        const std::string line = figure_.rows[row].label + ": " + error.what();
        if (std::ranges::count(refused_, line) == 0) refused_.push_back(line);
      }
    }
    most_.push_back(torus);
  }

  double ms_of(const PlannedForward& planned) const {
    return 1e3 * prices_.seconds(planned) * passes_;
  }

  static double arena_gb(const PlannedForward& planned) {
    return static_cast<double>(planned.schedules[0].memory.arena_bytes) * 1e-9;
  }

  std::vector<Gain> gains() const {
    std::vector<Gain> all;
    for (size_t row = 1; row < figure_.rows.size(); ++row) {
      std::vector<double> ratios;
      for (const SimulatedSize& size : sizes_) add_ratios(size, row, ratios);
      if (ratios.empty()) continue;
      double sum = 0;
      for (double ratio : ratios) sum += ratio;
      all.push_back({figure_.rows[row].label, sum / static_cast<double>(ratios.size()),
                     *std::ranges::max_element(ratios)});
    }
    return all;
  }

  void add_ratios(const SimulatedSize& size, size_t row, std::vector<double>& ratios) const {
    const bool each = figure_.degrees == Degrees::each;
    const auto best = [&](size_t of, int ring) {
      return size.least_ms(
          [&](const Priced& p) { return p.row == of && (!each || p.degrees.ring == ring); });
    };
    for (int ring = 1; ring <= (each ? place_.ranks() : 1); ++ring) {
      const double first = best(0, ring), own = best(row, ring);
      if (first > 0 && own > 0) ratios.push_back(first / own);
    }
  }

  std::string gains_text() const {
    std::string out;
    for (const Gain& gain : gains()) {
      out += fmt::format("{}{} {:.2f}x on average, up to {:.2f}x", out.empty() ? "" : "; ",
                         gain.label, gain.mean, gain.most);
    }
    if (out.empty()) return out;
    return fmt::format("Here, simulated, over {}{}: {}.\n", figure_.rows[0].label,
                       figure_.degrees == Degrees::each ? " of the same ring degree" : "", out);
  }

  const StepFamily& family_;
  const StepBenchOptions& options_;
  const BenchPlace& place_;
  const int groups_;  // of ranks that compute passes of guidance at once
  const int passes_;  // that a group computes in turn
  const std::unique_ptr<KernelCatalog> kernels_;
  const StepPrices prices_;
  Figure figure_;
  std::vector<SimulatedSize> sizes_;
  std::vector<double> alone_gb_, most_;  // by size; torus times the first row at most
  std::vector<std::string> refused_;
};

}  // namespace

void print_simulated(const StepFamily& family, const StepBenchOptions& options,
                     const BenchPlace& place) {
  Simulation simulation(family, options, place);
  simulation.run();
  print(options.json ? json_text(simulation.json()) + "\n" : simulation.table());
}

}  // namespace braid::app
