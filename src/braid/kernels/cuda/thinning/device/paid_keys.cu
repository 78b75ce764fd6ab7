#include "braid/kernels/cuda/thinning/device/paid_keys.h"

#include "braid/base/math.h"
#include "braid/kernels/cuda/thinning/device/score_forms.cuh"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;

struct PaidArgs {
  const void* q;
  const void* k[kMostPaidPairs];
  float* paid[kMostPaidPairs];
  int rows[kMostPaidPairs];
  int of_pair[kMostPaidPairs + 1], first_tile[kMostPaidPairs + 1];
  int heads, group, D;  // KV heads
  float scale;
  const ScoringRun* runs;
  const ScoringVisit* visits;
  float2* sums;  // maximum, and sum relative to it
  float* logs;
};

// A CTA per tile of a pair's keys and KV head. The first pass writes `sums`, the second `paid`.
template <class T, bool kTensor, bool kSecond>
__global__ void __launch_bounds__(kScoreThreads) paid_kernel(const PaidArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  int pair = 0;
  while (static_cast<int>(blockIdx.x) >= args.first_tile[pair + 1]) ++pair;
  const int begin = (blockIdx.x - args.first_tile[pair]) * kTileKeys, h = blockIdx.y;
  const ScoreTile<T> tile = tile_in<T>(shared, args.D);
  bool loaded = false;
  float paid = 0;
  for (int i = args.of_pair[pair]; i < args.of_pair[pair + 1]; ++i) {
    const ScoringVisit visit = args.visits[i];
    if (visit.end <= begin || visit.begin >= begin + kTileKeys) continue;
    if (!loaded) {
      load_keys(tile, args.k[pair], begin, args.rows[pair], args.heads, h, args.D);
      loaded = true;
    }
    const ScoringRun run = args.runs[visit.run];
    const TileQueries by{.q = args.q,
                         .q_row = run.q_row,
                         .queries = run.queries,
                         .begin = visit.begin - begin,
                         .end = visit.end - begin,
                         .sees = visit.sees - begin,
                         .heads = args.heads,
                         .group = args.group,
                         .h = h,
                         .D = args.D,
                         .scale = args.scale};
    const int64_t row = static_cast<int64_t>(h) * run.queries * args.group;
    const int slot = visit.tile + begin / kTileKeys - visit.begin / kTileKeys;
    paid += score_tile<T, kTensor, kSecond>(tile, by, args.sums + run.sums + row * run.tiles + slot,
                                            run.tiles, args.logs + run.logs + row);
  }
  if constexpr (kSecond) {
    const int j = begin + threadIdx.x;
    if (threadIdx.x >= kTileKeys || j >= args.rows[pair]) return;
    args.paid[pair][static_cast<int64_t>(j) * args.heads + h] = paid;
  }
}

// A warp per scoring row: the log of the sum over all tiles.
__global__ void __launch_bounds__(kThreads) run_logs_kernel(const PaidArgs args) {
  const ScoringRun run = args.runs[blockIdx.y];
  const int r = (blockIdx.x * kThreads + threadIdx.x) / 32;
  if (r >= args.heads * run.queries * args.group) return;
  const float log = log_of(args.sums + run.sums + static_cast<int64_t>(r) * run.tiles, run.tiles);
  if (threadIdx.x % 32 == 0) args.logs[run.logs + r] = log;
}

int64_t sums_bytes(const PaidVisits& visits) {
  return round_up(visits.sums * static_cast<int64_t>(sizeof(float2)), int64_t{256});
}

PaidArgs args_of(const PaidKeysParams& p) {
  PaidArgs args{.q = p.q.data,
                .heads = static_cast<int>(p.k[0].shape[2]),
                .group = static_cast<int>(p.q.shape[2] / p.k[0].shape[2]),
                .D = static_cast<int>(p.q.shape[3]),
                .scale = p.scale,
                .runs = p.runs,
                .visits = p.seen,
                .sums = reinterpret_cast<float2*>(p.workspace),
                .logs = reinterpret_cast<float*>(p.workspace + sums_bytes(*p.visits))};
  for (int i = 0; i < kMostPaidPairs; ++i) {
    args.k[i] = p.k[i].data;
    args.paid[i] = p.paid[i].as<float>();
    args.rows[i] = p.k[i].data == nullptr ? 0 : static_cast<int>(p.k[i].shape[1]);
  }
  for (int i = 0; i <= kMostPaidPairs; ++i) {
    args.of_pair[i] = p.visits->of_pair[i];
    args.first_tile[i] = p.visits->first_tile[i];
  }
  return args;
}

}  // namespace

int64_t paid_keys_workspace(const PaidVisits& visits) {
  return sums_bytes(visits) + visits.logs * static_cast<int64_t>(sizeof(float));
}

void prepare_paid_keys(DType dtype, int64_t D) {
  with_form(dtype, D, [&]<class T, class Tensor>(T, Tensor) {
    const size_t bytes = score_bytes(static_cast<int>(D), sizeof(T));
    allow_shared_memory(paid_kernel<T, Tensor::value, false>, bytes);
    allow_shared_memory(paid_kernel<T, Tensor::value, true>, bytes);
  });
  load_kernel(run_logs_kernel);
}

void paid_keys(const PaidKeysParams& p, LaunchContext context) {
  context.pdl = false;
  const PaidArgs args = args_of(p);
  const auto heads = static_cast<unsigned>(args.heads);
  const auto runs = static_cast<unsigned>(p.visits->runs.size());
  const auto warps = ceil_div(heads * p.visits->most_rows, int64_t{kThreads / 32});
  with_form(p.q.dtype, args.D, [&]<class T, class Tensor>(T, Tensor) {
    const dim3 grid(static_cast<unsigned>(args.first_tile[kMostPaidPairs]), heads);
    const size_t bytes = score_bytes(args.D, sizeof(T));
    if (runs > 0) {
      launch_kernel(context, paid_kernel<T, Tensor::value, false>, grid, kScoreThreads, bytes,
                    args);
      launch_kernel(context, run_logs_kernel, dim3(static_cast<unsigned>(warps), runs), kThreads, 0,
                    args);
    }
    launch_kernel(context, paid_kernel<T, Tensor::value, true>, grid, kScoreThreads, bytes, args);
  });
}

}  // namespace braid::cuda
