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
  int of_pair[kMostPaidPairs + 1], first_cta[kMostPaidPairs + 1];
  int heads, group, D;  // KV heads
  float scale;
  uint32_t inverse;  // of group
  const ScoringRun* runs;
  const ScoringVisit* visits;
  float2* sums;  // maximum, and sum relative to it
  float* logs;
};

// A CTA per kKeys of a pair's keys and KV head. The first pass writes `sums`, the second `paid`.
template <class T, bool kTensor, bool kSecond>
__global__ void __launch_bounds__(ScoreForm<T, kTensor>::kThreads, ScoreForm<T, kTensor>::kCtas)
    paid_kernel(const PaidArgs args) {
  using Form = ScoreForm<T, kTensor>;
  extern __shared__ __align__(128) unsigned char shared[];
  int pair = 0;
  while (static_cast<int>(blockIdx.x) >= args.first_cta[pair + 1]) ++pair;
  const int begin = (blockIdx.x - args.first_cta[pair]) * Form::kKeys, h = blockIdx.y;
  T* const k = reinterpret_cast<T*>(shared);
  const int tile = threadIdx.x / (32 * kRowWarps), first = begin + tile * kTileKeys;
  const T* const own = k + tile * kTileKeys * Form::pitch(args.D);
  bool loaded = false;
  LanePaid of_lane{};
  for (int i = args.of_pair[pair]; i < args.of_pair[pair + 1]; ++i) {
    const ScoringVisit visit = args.visits[i];
    if (visit.end <= begin || visit.begin >= begin + Form::kKeys) continue;
    if (!loaded) {
      load_keys<T, kTensor>(k, args.k[pair], begin, args.rows[pair], args.heads, h, args.D);
      loaded = true;
    }
    if (visit.end <= first || visit.begin >= first + kTileKeys) continue;
    const ScoringRun run = args.runs[visit.run];
    const TileQueries by{.q = args.q,
                         .q_row = run.q_row,
                         .queries = run.queries,
                         .begin = visit.begin - first,
                         .end = visit.end - first,
                         .sees = visit.sees - first,
                         .heads = args.heads,
                         .group = args.group,
                         .h = h,
                         .D = args.D,
                         .scale = args.scale,
                         .inverse = args.inverse};
    const int64_t row = static_cast<int64_t>(h) * run.queries * args.group;
    const int slot = visit.tile + first / kTileKeys - visit.begin / kTileKeys;
    if constexpr (kSecond) {
      pay_tile<T, kTensor>(of_lane, own, by, args.logs + run.logs + row);
    } else {
      sum_tile<T, kTensor>(own, by, args.sums + run.sums + row * run.tiles + slot, run.tiles);
    }
  }
  if constexpr (kSecond) {
    const float paid = paid_by_all<Form>(of_lane);
    const int j = begin + threadIdx.x;
    if (threadIdx.x >= Form::kKeys || j >= args.rows[pair]) return;
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

PaidArgs args_of(const PaidKeysParams& p, int keys_of_cta) {
  PaidArgs args{.q = p.q.data,
                .heads = static_cast<int>(p.k[0].shape[2]),
                .group = static_cast<int>(p.q.shape[2] / p.k[0].shape[2]),
                .D = static_cast<int>(p.q.shape[3]),
                .scale = p.scale,
                .inverse = 0,
                .runs = p.runs,
                .visits = p.seen,
                .sums = reinterpret_cast<float2*>(p.workspace),
                .logs = reinterpret_cast<float*>(p.workspace + sums_bytes(*p.visits))};
  args.inverse = inverse_of(args.group);
  for (int i = 0; i < kMostPaidPairs; ++i) {
    args.k[i] = p.k[i].data;
    args.paid[i] = p.paid[i].as<float>();
    args.rows[i] = p.k[i].data == nullptr ? 0 : static_cast<int>(p.k[i].shape[1]);
  }
  for (int i = 0; i < kMostPaidPairs; ++i) {
    args.of_pair[i + 1] = p.visits->of_pair[i + 1];
    args.first_cta[i + 1] = args.first_cta[i] + (args.rows[i] + keys_of_cta - 1) / keys_of_cta;
  }
  return args;
}

}  // namespace

int64_t paid_keys_workspace(const PaidVisits& visits) {
  return sums_bytes(visits) + visits.logs * static_cast<int64_t>(sizeof(float));
}

void prepare_paid_keys(DType dtype, int64_t D) {
  with_form(dtype, D, [&]<class T, class Tensor>(T, Tensor) {
    const size_t bytes = ScoreForm<T, Tensor::value>::bytes(static_cast<int>(D));
    allow_shared_memory(paid_kernel<T, Tensor::value, false>, bytes);
    allow_shared_memory(paid_kernel<T, Tensor::value, true>, bytes);
  });
  load_kernel(run_logs_kernel);
}

void paid_keys(const PaidKeysParams& p, LaunchContext context) {
  context.pdl = false;
  with_form(p.q.dtype, p.q.shape[3], [&]<class T, class Tensor>(T, Tensor) {
    using Form = ScoreForm<T, Tensor::value>;
    const PaidArgs args = args_of(p, Form::kKeys);
    const auto heads = static_cast<unsigned>(args.heads);
    const auto runs = static_cast<unsigned>(p.visits->runs.size());
    const dim3 grid(static_cast<unsigned>(args.first_cta[kMostPaidPairs]), heads);
    const size_t bytes = Form::bytes(args.D);
    if (runs > 0) {
      const auto warps = ceil_div(heads * p.visits->most_rows, int64_t{kThreads / 32});
      launch_kernel(context, paid_kernel<T, Tensor::value, false>, grid, Form::kThreads, bytes,
                    args);
      launch_kernel(context, run_logs_kernel, dim3(static_cast<unsigned>(warps), runs), kThreads, 0,
                    args);
    }
    launch_kernel(context, paid_kernel<T, Tensor::value, true>, grid, Form::kThreads, bytes, args);
  });
}

}  // namespace braid::cuda
