#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "braid/server/schema/fields.h"

namespace braid::server {

enum class DatasetKind { random, shared_prefix, jsonl };
enum class Arrivals { poisson, constant };

// Upper limits, in seconds, within which a request counts as good.
struct GoodputLimits {
  std::optional<double> ttft, tpot, e2el;

  bool any() const { return ttft || tpot || e2el; }
};

// A load on an OpenAI-compatible server.
struct LoadConfig {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string base = "/v1";  // prefix for all paths
  std::string model;         // empty: the first in GET {base}/models
  std::string key;           // API key; empty: none is sent
  bool chat = true;          // {base}/chat/completions, else {base}/completions

  DatasetKind dataset = DatasetKind::random;
  std::string file;          // for DatasetKind::jsonl
  int64_t requests = 100;    // a file's first lines, again from the beginning after the last
  int64_t input_len = 256;   // tokens in a prompt, behind its prefix
  int64_t output_len = 128;  // tokens per answer
  double range_ratio = 0;    // lengths are uniform in [len * (1 - ratio), len * (1 + ratio)]
  int64_t prefix_len = 512;  // tokens in a shared prefix
  int64_t prefixes = 4;      // different ones
  bool ignore_eos = false;
  double temperature = 0;
  Json extra = Json::object();  // extra members for every body

  double rate = 0;  // requests per second; 0: as fast as `concurrency` allows
  Arrivals arrivals = Arrivals::poisson;
  int64_t concurrency = 0;  // requests under way at most; 0: no limit
  uint64_t seed = 1;
  double timeout = 600;  // seconds per request
  int64_t warm_up = 1;   // requests before, not measured
  GoodputLimits goodput;
};

}  // namespace braid::server
