#include "backend/cuda/sequence/sequence_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "backend/cuda/queues.h"
#include "braid/backend/cuda/cuda_backend.h"
#include "braid/fabric/host_barrier.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cuda/register.h"
#include "braid/runtime/executor.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "dist/sequence_inputs.h"

namespace braid::testing_sp_gpu {

int gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
  return count;
}

bool has_gpus(const Topology& topology) {
  return gpus() > 0 && (topology.ranks() <= gpus() || testing_cuda::ranks_may_share());
}

namespace {

using namespace testing_sp;  // sequence_inputs.h

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bf16 element(uint64_t seed, Tensor tensor, int64_t b, int64_t position, int64_t head, int64_t d) {
  const uint64_t bits = mix(mix(seed * 16 + tensor) + static_cast<uint64_t>(b)) ^
                        static_cast<uint64_t>(((position * 64) + head) * 512 + d);
  return to_bf16(static_cast<float>(static_cast<int32_t>(mix(bits))) * 0x1p-30f);
}

// A whole tensor, [B, positions, heads, D] in f32.
struct Whole {
  int64_t L, heads, D;
  std::vector<float> data;

  Whole(uint64_t seed, Tensor tensor, int64_t B, int64_t L, int64_t heads, int64_t D)
      : L(L), heads(heads), D(D) {
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t i = 0; i < L * heads * D; ++i) {
        data.push_back(to_float(element(seed, tensor, b, i / D / heads, i / D % heads, i % D)));
      }
    }
  }
  const float* row(int64_t b, int64_t position, int64_t head) const {
    return data.data() + ((b * L + position) * heads + head) * D;
  }
};

// All inputs of attention with a seed; a prefix has the positions before the sequence's, and so
// have keys of earlier steps.
struct Inputs {
  Whole q, k, v, joint_q, joint_k, joint_v;
  Inputs(const SequenceAttention& a, uint64_t seed)
      : q(seed, kQ, a.batch, std::max(a.joint_q + a.q.length(), a.kv.length()), a.q_heads,
          a.head_dim),
        k(seed, kK, a.batch, a.joint_kv + a.kv.length(), a.kv_heads, a.head_dim),
        v(seed, kV, a.batch, a.joint_kv + a.kv.length(), a.kv_heads, a.head_dim),
        joint_q(seed, kJointQ, a.batch, a.joint_q, a.q_heads, a.head_dim),
        joint_k(seed, kJointK, a.batch, a.joint_kv, a.kv_heads, a.head_dim),
        joint_v(seed, kJointV, a.batch, a.joint_kv, a.kv_heads, a.head_dim) {}
};

double dot(const float* q, const float* k, int64_t D) {
  double sum = 0;
  for (int64_t d = 0; d < D; ++d) sum += double{q[d]} * double{k[d]};
  return sum;
}

std::vector<double> reference_row(const SequenceAttention& a, const Inputs& in, const Sees& sees,
                                  bool joint, int64_t b, int64_t position, int64_t head) {
  const int64_t kv_head = head / a.group(), D = a.head_dim;
  const float* q = (joint ? in.joint_q : in.q).row(b, position, head);
  std::vector<double> acc(static_cast<size_t>(D));
  double top = -INFINITY, l = 0;
  const auto see = [&](const Whole& k, const Whole& v, int64_t at) {
    if (a.window_right >= 0 && at - position > a.window_right) return;
    if (a.window_left >= 0 && position - at > a.window_left) return;
    if (sees && !sees(position, at, kv_head)) return;
    const float* value = v.row(b, at, kv_head);
    const double score = a.scale * dot(q, k.row(b, at, kv_head), D);
    const double m = std::max(top, score), keep = std::exp(top - m), p = std::exp(score - m);
    for (int64_t d = 0; d < D; ++d) acc[d] = acc[d] * keep + p * double{value[d]};
    l = l * keep + p;
    top = m;
  };
  for (int64_t at = 0; at < a.joint_kv; ++at) see(in.joint_k, in.joint_v, at);
  for (int64_t at = a.joint_kv; at < a.joint_kv + a.kv.length(); ++at) see(in.k, in.v, at);
  for (double& x : acc) x = l > 0 ? x / l : 0;
  return acc;
}

// Fills the rows of [B, L, heads, D] that there are; the rest is NaN, which no result may show.
void fill(const TensorView& view, uint64_t seed, Tensor tensor,
          const std::vector<int64_t>& positions) {
  std::memset(view.data, 0xff, static_cast<size_t>(view.bytes()));
  auto* out = reinterpret_cast<bf16*>(view.data);
  const int64_t L = view.shape[1], H = view.shape[2], D = view.shape[3];
  for (int64_t b = 0; b < view.shape[0]; ++b) {
    for (size_t r = 0; r < positions.size(); ++r) {
      for (int64_t h = 0; h < H; ++h) {
        for (int64_t d = 0; d < D; ++d) {
          out[((b * L + static_cast<int64_t>(r)) * H + h) * D + d] =
              element(seed, tensor, b, positions[r], h, d);
        }
      }
    }
  }
}

struct Rank {
  Rank(fabric::PeerEndpoint& endpoint, const Mesh& mesh, const cuda::SmPartition* part)
      : table(cuda::device_info(endpoint.device(), part)), comm(endpoint, {&mesh, 1}) {
    cuda::add_cuda_kernels(table);
    cuda::add_one_sided_kernels(table, comm);
    backend = std::make_unique<cuda::CudaBackend>(
        table, [&endpoint] { endpoint.check(); }, part);
  }
  cuda::KernelTable table;
  cuda::OneSidedComm comm;
  std::unique_ptr<cuda::CudaBackend> backend;
};

std::vector<bf16> own_rows(const TensorView& view, int64_t rows) {
  std::vector<bf16> out;
  const int64_t width = view.shape[2] * view.shape[3];
  for (int64_t b = 0; b < view.shape[0]; ++b) {
    const auto* begin = reinterpret_cast<const bf16*>(view.data) + b * view.shape[1] * width;
    out.insert(out.end(), begin, begin + rows * width);
  }
  return out;
}

}  // namespace

fabric::PeerFabricConfig fabric_config(const Topology& topology,
                                       std::chrono::milliseconds device_deadline) {
  fabric::PeerFabricConfig config{.ranks = topology.ranks(),
                                  .device_deadline = device_deadline,
                                  .share_devices = gpus() < topology.ranks()};
  config.links.machines = topology.machines;
  return config;
}

std::vector<Result> run(fabric::PeerFabric& fabric, const SequenceAttention& a,
                        const SequenceMesh& mesh, const RunConfig& config) {
  const auto P = static_cast<size_t>(mesh.ranks());
  std::vector<int> devices;
  for (int r = 0; r < mesh.ranks(); ++r) devices.push_back(fabric.endpoint(r).device());
  const auto parts = cuda::divide_gpus(devices);
  std::vector<std::unique_ptr<Rank>> ranks(P);
  fabric::run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
    const auto r = static_cast<size_t>(e.rank());
    ranks[r] = std::make_unique<Rank>(e, mesh.mesh, parts[r].get());
  });
  std::vector<const KernelCatalog*> catalogs;
  for (const auto& rank : ranks) catalogs.push_back(&rank->table);
  AttentionDivision division{.least_rows = 1};
  if (!config.by_stages) division.kernels = catalogs;
  Plan plan{attention_programs(a, mesh, division), {}};
  PlanRequest request{
      .catalogs = catalogs, .micro_batches = {}, .topology = mesh.topology, .price = {}};
  std::vector<Extents> counts;
  for (int mb = 0; mb < config.micro_batches; ++mb) {
    counts.push_back({.sequence = even_part(a.batch, config.micro_batches, mb).size()});
    request.micro_batches.push_back({.capacity = counts.back()});
  }
  plan_schedules(plan, *find_strategy(config.strategy), request);
  std::vector<Result> results(config.seeds.size());
  for (Result& result : results)
    result.o.resize(P), result.joint_o.resize(P), result.bytes.resize(P);
  fabric::run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
    const auto r = static_cast<size_t>(e.rank());
    const auto arena =
        std::make_shared<fabric::SymmetricMemory>(e, plan.schedules[r].memory.arena_bytes, "arena");
    cuda::check_cuda(cudaMemset(arena->data(), 0xff, static_cast<size_t>(arena->bytes())),
                     "poison");
    cuda::check_cuda(cudaDeviceSynchronize(), "poison");
    Executor executor(plan.programs[r], plan.schedules[r], *ranks[r]->backend, {}, arena);
    fabric::HostBarrier meeting(e);
    for (size_t i = 0; i < config.seeds.size(); ++i) {
      const uint64_t seed = config.seeds[i];
      fill(executor.input("q"), seed, kQ, positions_of(a.q, e.rank()));
      fill(executor.input("k"), seed, kK, positions_of(a.kv, e.rank()));
      fill(executor.input("v"), seed, kV, positions_of(a.kv, e.rank()));
      if (a.joint_q > 0) fill(executor.input("joint_q"), seed, kJointQ, prefix(a.joint_q));
      if (a.joint_kv > 0) {
        fill(executor.input("joint_k"), seed, kJointK, prefix(a.joint_kv));
        fill(executor.input("joint_v"), seed, kJointV, prefix(a.joint_kv));
      }
      e.traffic().reset();
      executor.prepare(counts);
      meeting.wait();
      if (config.absent && e.rank() == 1) return;
      if (e.rank() == 1) std::this_thread::sleep_for(config.late);
      executor.run(counts);
      meeting.wait();
      results[i].o[r] = own_rows(executor.host_output(0, a.batch), a.q.rows(e.rank()));
      if (a.joint_q > 0)
        results[i].joint_o[r] = own_rows(executor.host_output(1, a.batch), a.joint_q);
      for (const auto& entry : e.traffic().entries()) {
        if (entry.verb != fabric::Verb::signal) results[i].bytes[r] += entry.bytes;
      }
    }
    meeting.wait();
  });
  return results;
}

void expect_exact(const SequenceAttention& a, const Result& got, uint64_t seed, const Sees& sees) {
  const Inputs inputs(a, seed);
  const auto check = [&](const std::vector<bf16>& o, const std::vector<int64_t>& positions,
                         bool joint, int rank) {
    const auto L = static_cast<int64_t>(positions.size());
    ASSERT_EQ(static_cast<int64_t>(o.size()), a.batch * L * a.q_heads * a.head_dim);
    for (int64_t row = 0; row<a.batch * L; row += L> 20 ? 7 : 1) {
      const int64_t b = row / L, r = row % L;
      for (int64_t h = 0; h < a.q_heads; ++h) {
        const auto want =
            reference_row(a, inputs, sees, joint, b, positions[static_cast<size_t>(r)], h);
        for (int64_t d = 0; d < a.head_dim; ++d) {
          const double x = to_float(o[((b * L + r) * a.q_heads + h) * a.head_dim + d]);
          ASSERT_LE(std::abs(want[d] - x), 0.005 + 0.01 * std::abs(want[d]))
              << "rank " << rank << ", sequence " << b << ", row " << r << ", head " << h << ", d "
              << d << (joint ? " of the prefix" : "") << ": " << x << " for " << want[d];
        }
      }
    }
  };
  for (int rank = 0; rank < static_cast<int>(got.o.size()); ++rank) {
    check(got.o[static_cast<size_t>(rank)], positions_of(a.q, rank), false, rank);
    if (a.joint_q > 0) check(got.joint_o[static_cast<size_t>(rank)], prefix(a.joint_q), true, rank);
  }
}

std::vector<double> all_scores(const SequenceAttention& a, uint64_t seed) {
  const Inputs in(a, seed);
  const int64_t n = a.kv.length();
  std::vector<double> scores;
  for (int64_t head = 0; head < a.q_heads; ++head) {
    for (int64_t i = 0; i < n * n; ++i) {
      const float *q = in.q.row(0, i / n, head), *k = in.k.row(0, i % n, head / a.group());
      scores.push_back(a.scale * dot(q, k, a.head_dim));
    }
  }
  return scores;
}

bool same_bits(const std::vector<std::vector<bf16>>& a, const std::vector<std::vector<bf16>>& b) {
  for (size_t r = 0; r < a.size(); ++r) {
    if (a[r].size() != b[r].size()) return false;
    if (!a[r].empty() && std::memcmp(a[r].data(), b[r].data(), 2 * a[r].size()) != 0) return false;
  }
  return true;
}

}  // namespace braid::testing_sp_gpu
