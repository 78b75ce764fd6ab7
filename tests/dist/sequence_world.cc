#include "dist/sequence_world.h"

namespace braid::testing_sp {

std::vector<double> reference_row(const SequenceAttention& a, uint64_t seed, bool joint, int64_t b,
                                  int64_t position, int64_t head) {
  const int64_t kv_head = head / a.group();
  std::vector<double> q(static_cast<size_t>(a.head_dim)), acc(q.size());
  for (int64_t d = 0; d < a.head_dim; ++d) {
    q[d] = element(seed, joint ? kJointQ : kQ, b, position, head, d);
  }
  struct Key {
    Tensor k, v;
    int64_t position;
    double score;
  };
  std::vector<Key> keys;
  double top = -INFINITY;
  const auto see = [&](Tensor k, Tensor v, int64_t at) {
    if (a.window_right >= 0 && at - position > a.window_right) return;
    if (a.window_left >= 0 && position - at > a.window_left) return;
    double score = 0;
    for (int64_t d = 0; d < a.head_dim; ++d) score += q[d] * element(seed, k, b, at, kv_head, d);
    keys.push_back({k, v, at, score * a.scale});
    top = std::max(top, keys.back().score);
  };
  for (int64_t at = 0; at < a.joint_kv; ++at) see(kJointK, kJointV, at);
  for (int rank = 0; rank < static_cast<int>(a.kv.ranks.size()); ++rank) {
    for (int64_t at : positions_of(a.kv, rank)) see(kK, kV, at);
  }
  double l = 0;
  for (const Key& key : keys) {
    const double p = std::exp(key.score - top);
    l += p;
    for (int64_t d = 0; d < a.head_dim; ++d) {
      acc[d] += p * element(seed, key.v, b, key.position, kv_head, d);
    }
  }
  for (double& x : acc) x = l > 0 ? x / l : 0;
  return acc;
}

namespace {

// Fills rows of [B, L, heads, D]; the rest is NaN, which no result may show.
void fill(const TensorView& view, uint64_t seed, Tensor tensor,
          const std::vector<int64_t>& positions) {
  std::memset(view.data, 0xff, static_cast<size_t>(view.bytes()));
  for (int64_t b = 0; b < view.shape[0]; ++b) {
    for (size_t r = 0; r < positions.size(); ++r) {
      for (int64_t h = 0; h < view.shape[2]; ++h) {
        float* row =
            view.row_as<float>((b * view.shape[1] + static_cast<int64_t>(r)) * view.shape[2] + h);
        for (int64_t d = 0; d < view.shape[3]; ++d) {
          row[d] = element(seed, tensor, b, positions[r], h, d);
        }
      }
    }
  }
}

std::vector<float> own_rows(const TensorView& view, int64_t rows) {
  std::vector<float> out;
  for (int64_t b = 0; b < view.shape[0]; ++b) {
    const float* begin = view.row_as<float>(b * view.shape[1] * view.shape[2]);
    out.insert(out.end(), begin, begin + rows * view.shape[2] * view.shape[3]);
  }
  return out;
}

}  // namespace

WorldResult run_world(const SequenceAttention& a, const SequenceMesh& mesh,
                      const WorldConfig& config) {
  const AttentionDivision division{
      .kernels = config.kernels, .least_rows = 1, .queries = config.queries};
  Plan plan{attention_programs(a, mesh, division), {}};
  const auto P = static_cast<size_t>(mesh.ranks());
  WorldResult result;
  result.o.resize(P);
  result.joint_o.resize(P);
  result.traffic.resize(P);
  fabric::LinkModel links = config.links;
  links.machines = mesh.topology.machines;
  fabric::LocalFabric world({.ranks = mesh.ranks(),
                             .threads_per_rank = config.threads + kNumStreams - 1,
                             .deadline = config.deadline,
                             .links = links});
  struct Rank {
    Rank(int threads, int total) : table(threads), pool(threads, total), backend(table, pool) {}
    cpu::KernelTable table;
    cpu::ThreadPool pool;
    std::unique_ptr<cpu::MeshComms> comms;
    cpu::CpuBackend backend;
  };
  std::vector<std::unique_ptr<Rank>> ranks;
  PlanRequest request{.catalogs = {}, .micro_batches = {}, .topology = mesh.topology, .price = {}};
  for (size_t r = 0; r < P; ++r) {
    ranks.push_back(std::make_unique<Rank>(config.threads, 64));
    fabric::Endpoint& endpoint = world.endpoint(static_cast<int>(r));
    ranks[r]->comms = std::make_unique<cpu::MeshComms>(endpoint, std::span(&mesh.mesh, 1));
    cpu::add_cpu_kernels(ranks[r]->table);
    cpu::add_one_sided_kernels(ranks[r]->table, endpoint, *ranks[r]->comms);
    if (config.adjust) config.adjust(endpoint, ranks[r]->table);
    request.catalogs.push_back(&ranks[r]->table);
  }
  for (int mb = 0; mb < config.micro_batches; ++mb) {
    request.micro_batches.push_back(
        {.capacity = {.sequence = even_part(a.batch, config.micro_batches, mb).size()}});
  }
  plan_schedules(plan, *find_strategy(config.strategy), request);
  result.schedules = plan.schedules;
  fabric::run_ranks(world, [&](fabric::Endpoint& endpoint) {
    const auto r = static_cast<size_t>(endpoint.rank());
    const int64_t arena = plan.schedules[r].memory.arena_bytes;
    Executor executor(plan.programs[r], plan.schedules[r], ranks[r]->backend, {},
                      std::make_unique<fabric::SymmetricMemory>(endpoint, arena, "arena"));
    std::vector<Extents> counts;
    for (const MicroBatch& mb : request.micro_batches) counts.push_back(mb.capacity);
    for (int step = 0; step < config.steps; ++step) {
      const uint64_t seed = config.seed + static_cast<uint64_t>(step);
      fill(executor.input("q"), seed, kQ, positions_of(a.q, endpoint.rank()));
      fill(executor.input("k"), seed, kK, positions_of(a.kv, endpoint.rank()));
      fill(executor.input("v"), seed, kV, positions_of(a.kv, endpoint.rank()));
      if (a.joint_q > 0) fill(executor.input("joint_q"), seed, kJointQ, prefix(a.joint_q));
      if (a.joint_kv > 0) {
        fill(executor.input("joint_k"), seed, kJointK, prefix(a.joint_kv));
        fill(executor.input("joint_v"), seed, kJointV, prefix(a.joint_kv));
      }
      endpoint.traffic().reset();
      executor.run(counts);
    }
    result.traffic[r] = endpoint.traffic().entries();
    result.o[r] = own_rows(executor.output(0), a.q.rows(endpoint.rank()));
    if (a.joint_q > 0) result.joint_o[r] = own_rows(executor.output(1), a.joint_q);
  });
  return result;
}

void expect_exact(const SequenceAttention& a, const WorldResult& got, uint64_t seed) {
  constexpr double kBound = 1e-5;
  double worst = 0;
  const auto check = [&](const std::vector<float>& o, const std::vector<int64_t>& positions,
                         bool joint, int rank) {
    const auto L = static_cast<int64_t>(positions.size());
    ASSERT_EQ(static_cast<int64_t>(o.size()), a.batch * L * a.q_heads * a.head_dim);
    for (int64_t b = 0; b < a.batch; ++b) {
      for (int64_t r = 0; r < L; ++r) {
        for (int64_t h = 0; h < a.q_heads; ++h) {
          const auto want = reference_row(a, seed, joint, b, positions[static_cast<size_t>(r)], h);
          for (int64_t d = 0; d < a.head_dim; ++d) {
            const double error =
                std::abs(want[d] - o[((b * L + r) * a.q_heads + h) * a.head_dim + d]);
            ASSERT_LE(error, kBound) << "rank " << rank << ", sequence " << b << ", position "
                                     << positions[static_cast<size_t>(r)] << ", head " << h
                                     << (joint ? " of the prefix" : "");
            worst = std::max(worst, error);
          }
        }
      }
    }
  };
  for (int rank = 0; rank < static_cast<int>(got.o.size()); ++rank) {
    const auto i = static_cast<size_t>(rank);
    check(got.o[i], positions_of(a.q, rank), false, rank);
    if (a.joint_q > 0) check(got.joint_o[i], prefix(a.joint_q), true, rank);
  }
}

int64_t bytes(const std::vector<fabric::TrafficEntry>& entries, LinkClass link) {
  int64_t total = 0;
  for (const fabric::TrafficEntry& entry : entries) {
    if (entry.link == link && entry.verb != fabric::Verb::signal) total += entry.bytes;
  }
  return total;
}

}  // namespace braid::testing_sp
