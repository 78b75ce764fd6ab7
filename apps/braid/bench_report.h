#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "braid/engine/generate.h"
#include "braid/model/model.h"

namespace braid::app {

// What the machine does at most, over all ranks: bytes read and operations a second; 0: not known.
struct Roof {
  double bytes = 0;
  double flops = 0;
};

// One row: a prompt, or decoding.
struct BenchResult {
  int64_t prompt = 0;  // tokens of a prompt; 0: the row decodes
  int64_t decode = 0;  // tokens of each sequence; 0: the row is a prompt
  int64_t depth = 0;   // tokens in the KV cache before
  int64_t batch = 1;   // sequences that are decoded together
  int64_t own = 0;     // short sequences besides, each a rank's own
  bool communication = true;
  std::vector<double> seconds;  // of each repetition
  double bytes = 0;             // weights and KV that a decode step must read; 0 for a prompt
  double flops = 0;             // for a decode step, or for the whole prompt
  LoopStats loop;               // of a device's decode loop
  std::optional<Approximation> approximate = {};  // of the row's prompts

  std::string name() const;  // "pp512", "tg128 @ d1024"
  std::vector<double> tokens_per_s() const;
  double mean() const;          // tokens a second
  double spread() const;        // their standard deviation
  double step_seconds() const;  // for a decode step, or for the prompt
  // The roof's least time over the measured time; 0: not known.
  double floor_share(const Roof& roof) const;
};

enum class BenchFormat { table, json, jsonl, csv };
// Fails with kInvalidArgument, naming the formats.
BenchFormat parse_bench_format(const std::string& text);

// Prints rows as measured: a table for people, a JSON object at the end, or a line of JSON or CSV
// per row, complete in itself (machine, commit, model, parameters).
class BenchReport {
 public:
  BenchReport(BenchFormat format, const EngineConfig& config, const Generator& engine,
              const Model& model, const Roof& roof);
  void add(const BenchResult& result);
  void finish();

 private:
  nlohmann::ordered_json run_json() const;
  nlohmann::ordered_json row_json(const BenchResult& result) const;
  nlohmann::ordered_json line_json(const BenchResult& result) const;

  const BenchFormat format_;
  const EngineConfig& config_;
  const Generator& engine_;
  const Model& model_;
  const Roof roof_;
  std::vector<BenchResult> results_;
};

}  // namespace braid::app
