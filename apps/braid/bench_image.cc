// braid bench image: a denoising step of Flux on one device and over ranks in every mode, with
// random weights, beside the simulator's prediction.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "braid/bench_image.h"
#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/link_topology.h"
#include "braid/engine/profile_choice.h"
#include "braid/engine/world.h"
#include "braid/options.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

using Clock = std::chrono::steady_clock;

struct ImageBench {
  std::string weights, device = "auto", modes = "all", machines, schedule = "sequence_parallel";
  std::vector<int64_t> sizes = {1024};
  int64_t text_tokens = 512;
  int ranks = 0, threads = 0, repetitions = 5;
  double link_gbps = 0, link_us = 0;
  bool launches = false, decode = false;
  DegreeOptions degrees;
};

struct StepTimes {
  double median_ms = 0, least_ms = 0, predicted_ms = 0;
  double arena_gb = 0;
  std::string kinds;  // rank 0's time by kind of op, launch by launch
};

std::vector<float> normals(uint64_t seed, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  TorchGenerator(seed).normals(out);
  return out;
}

std::string kinds_of(BoundNetwork& network) {
  network.run_timed();  // loads
  const std::vector<LaunchTime> times = network.run_timed();
  const Executor& executor = network.executor(0);
  std::map<std::string, std::pair<int, double>> kinds;
  for (size_t i = 0; i < times.size(); ++i) {
    const Launch& launch = executor.schedule().launches[i];
    auto& [count, ms] = kinds[fmt::format("{} {}", to_string(launch.stream), launch.kernel.name)];
    count += 1;
    ms += 1e3 * (times[i].end - times[i].begin);
  }
  std::string out;
  for (const auto& [kind, sum] : kinds) {
    out += fmt::format("  {:>9.3f} ms {:>5} x {}\n", sum.second, sum.first, kind);
  }
  return out;
}

StepTimes measure(FluxTransformer& transformer, int64_t size, const ImageBench& o,
                  const std::optional<CostModel>& cost) {
  const FluxConfig& c = transformer.config();
  const int64_t side = size / 16;
  const auto text = normals(1, o.text_tokens * c.text_dim), pooled = normals(2, c.pooled_dim);
  const std::vector<float> sigmas = {0.5f};
  transformer.begin({.token_rows = side,
                     .token_columns = side,
                     .text = text,
                     .pooled = pooled,
                     .sigmas = sigmas,
                     .guidance = 3.5f});
  const auto latents = normals(3, side * side * c.in_channels);
  std::vector<double> ms;
  for (int i = -2; i < o.repetitions; ++i) {  // two that plan, load and capture
    const auto start = Clock::now();
    transformer.velocity(0, latents);
    const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
    if (i >= 0) ms.push_back(passed.count());
  }
  std::ranges::sort(ms);
  BoundNetwork& network = transformer.bound_step();
  const int64_t arena = network.executor(0).schedule().memory.arena_bytes;
  StepTimes times{.median_ms = ms[ms.size() / 2],
                  .least_ms = ms[0],
                  .arena_gb = static_cast<double>(arena) * 1e-9};
  if (cost) times.predicted_ms = 1e3 * network.predicted_seconds(*cost);
  if (o.launches) times.kinds = kinds_of(network);
  return times;
}

// Milliseconds of a picture's decoding, its pixels on the host: the median.
double decode_ms(VaeDecoder& decoder, int64_t size, int repetitions) {
  const int64_t side = size / decoder.scale();
  const auto latents = normals(4, side * side * decoder.channels());
  std::vector<double> ms;
  for (int i = -2; i < repetitions; ++i) {
    const auto start = Clock::now();
    decoder.decode(latents, side, side);
    const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
    if (i >= 0) ms.push_back(passed.count());
  }
  std::ranges::sort(ms);
  return ms[ms.size() / 2];
}

std::vector<SpMode> parse_modes(const std::string& text) {
  if (text == "all") return {kSpModes.begin(), kSpModes.end()};
  std::vector<SpMode> modes;
  for (const std::string& name : CLI::detail::split(text, ','))
    modes.push_back(parse_sp_mode(name));
  return modes;
}

void check(const ImageBench& o) {
  for (int64_t size : o.sizes) {
    require_between("--size", size, 16, 8192);
    if (size % 16 == 0) continue;
    fail(ErrorCode::kInvalidArgument, "--size is {}, wanted is a multiple of 16", size);
  }
  require_between("--text-tokens", o.text_tokens, 1, 512);
  require_between("-r", o.repetitions, 1, 1000);
  require_between("--ranks", o.ranks, 0, 1024);
}

void bench_image(const ImageBench& o) {
  check(o);
  const std::vector<SpMode> modes = parse_modes(o.modes);
  // The mode named here is for devices, ranks and links alone.
  SequenceRequest sequence{.mode = "ring", .machines = o.machines, .schedule_named = true};
  if (o.ranks != 0) sequence.ranks = o.ranks;
  EngineConfig engine = choose_parallel({.device = o.device,
                                         .engine = {.threads = o.threads, .schedule = o.schedule},
                                         .link_gbps = o.link_gbps,
                                         .link_us = o.link_us,
                                         .sequence = sequence},
                                        terminal_notes())
                            .engine;
  const DType dtype = engine.device.cuda ? DType::bf16 : DType::f32;
  const Topology topology = topology_of(engine.links, engine.tp);
  const std::optional<Profile> profile = known_profile(engine);
  std::string out = fmt::format("{}: {} text tokens, random weights in {}, {} ranks as {}{}, {}\n",
                                o.weights, o.text_tokens, name(dtype), engine.tp,
                                to_string(topology), topology.emulated ? ", links emulated" : "",
                                engine.device.cuda ? gpu_name(engine.device.first_gpu()) : "CPU");
  out +=
      "| size | mode | torus x ulysses x ring | step ms | least ms | times one rank | predicted ms "
      "| values GB |\n|---|---|---|---:|---:|---:|---:|---:|\n";
  const FluxParts parts = random_flux(o.weights, dtype);
  std::map<int64_t, double> alone;  // ms by size
  std::string kinds, refused;
  const auto run = [&](const std::string& mode, const NetworkConfig& network) {
    FluxTransformer transformer(parts.transformer, *parts.transformer_weights, network);
    std::optional<CostModel> cost;
    if (profile) cost.emplace(*profile, network.mesh ? topology : Topology{});
    for (int64_t size : o.sizes) {
      const StepTimes times = measure(transformer, size, o, cost);
      alone.try_emplace(size, times.median_ms);
      const SpDegrees d = network.mesh ? network.mesh->degrees : SpDegrees{};
      out += fmt::format("| {} | {} | {} x {} x {} | {:.2f} | {:.2f} | {:.2f} | {} | {:.2f} |\n",
                         size, mode, d.torus, d.ulysses, d.ring, times.median_ms, times.least_ms,
                         alone.at(size) / times.median_ms,
                         cost ? fmt::format("{:.2f} ({:+.1f}%)", times.predicted_ms,
                                            100 * (times.predicted_ms / times.median_ms - 1))
                              : "-",
                         times.arena_gb);
      if (o.launches) kinds += fmt::format("{}, {}, rank 0:\n{}", mode, size, times.kinds);
    }
  };
  NetworkConfig one{.threads = threads_of(engine) * engine.tp,
                    .device = engine.device,
                    .dtype = dtype,
                    .random = parts.random_transformer};
  if (one.device.cuda) one.device.ids = {engine.device.first_gpu()};
  run("one rank", one);
  for (SpMode mode : engine.tp > 1 ? modes : std::vector<SpMode>()) {
    NetworkConfig network = one;
    network.threads = threads_of(engine);
    network.device = engine.device;
    network.links = engine.links;
    network.schedule = o.schedule;
    try {
      network.mesh = sequence_mesh(mode, topology, read_flux_config(parts.transformer).heads,
                                   o.degrees.request());
    } catch (const Error& error) {
      if (o.modes != "all" || error.code() != ErrorCode::kInvalidArgument) throw;
      refused += fmt::format("{}: {}\n", to_string(mode), error.what());
      continue;
    }
    run(std::string(to_string(mode)), network);
  }
  if (o.decode) {
    out += "\n| size | ranks | decode ms | times one rank |\n|---|---|---:|---:|\n";
    std::map<int64_t, double> whole;  // ms by size
    for (int ranks : engine.tp > 1 ? std::vector{1, engine.tp} : std::vector{1}) {
      NetworkConfig network = one;
      network.random = parts.random_vae;
      if (ranks > 1) {
        network.threads = threads_of(engine);
        network.device = engine.device;
        network.links = engine.links;
        network.schedule = "sequential";
        network.mesh = sequence_mesh(SpMode::ring, topology, ranks);
      }
      VaeDecoder decoder(parts.vae, parts.vae_weights, network);
      for (int64_t size : o.sizes) {
        const double ms = decode_ms(decoder, size, o.repetitions);
        whole.try_emplace(size, ms);
        out += fmt::format("| {} | {} | {:.2f} | {:.2f} |\n", size, ranks, ms, whole.at(size) / ms);
      }
    }
  }
  print(out + refused + kinds);
}

}  // namespace

void add_bench_image(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "image", "Times a step of Flux on one device and over ranks, with random weights");
  const auto o = std::make_shared<ImageBench>();
  command->add_option("--random-weights", o->weights, "the shape: configs/flux-1-dev.json")
      ->required();
  command->add_option("--size", o->sizes, "pixels of a side, several with commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--text-tokens", o->text_tokens, "tokens of text")->capture_default_str();
  command->add_option("--device", o->device, "cpu, cuda, or cuda:0,1: a rank on each GPU")
      ->capture_default_str();
  command->add_option("-t,--threads", o->threads, "threads of each rank (0: cores / ranks)");
  command
      ->add_option("--sp", o->modes, "ring, ulysses, usp, tas, torus, several with commas, or all")
      ->capture_default_str();
  command->add_option("--ranks", o->ranks, "ranks (default: one for each GPU of --device)");
  o->degrees.add_to(*command, "");
  command->add_option("--schedule", o->schedule, "a strategy")->capture_default_str();
  command->add_option("--machines", o->machines,
                      "MACHINESxDEVICES in place of --ranks; machines are emulated");
  command->add_option("--link-gbps", o->link_gbps, "GB/s between machines; 0: as it is");
  command->add_option("--link-us", o->link_us, "latency between machines");
  command->add_option("-r", o->repetitions, "repetitions; the median counts")
      ->capture_default_str();
  command->add_flag("--decode", o->decode, "time decoding, too");
  command->add_flag("--launches", o->launches, "print rank 0's time by kernel");
  command->footer(
      "Examples:\n"
      "  braid bench image --random-weights configs/flux-1-dev.json --device cuda:0,1\n"
      "  braid bench image --random-weights configs/flux-1-dev.json --device cuda:0,1,2,3 "
      "--machines 2x2 --link-gbps 12.5 --size 2048,3072");
  command->callback([o, &bench] {
    require_no_options(bench, "image");
    bench_image(*o);
  });
}

}  // namespace braid::app
