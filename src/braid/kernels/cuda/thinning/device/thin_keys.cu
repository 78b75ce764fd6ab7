#include "braid/kernels/cuda/thinning/device/thin_keys.h"

#include <algorithm>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cub/device/device_segmented_radix_sort.cuh>

#include "braid/backend/cuda/handles.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/thinning/device/importance.cuh"
#include "braid/kernels/cuda/thinning/device/score_forms.cuh"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;

// A warp per scoring row: the log of the sum over all tiles.
__global__ void __launch_bounds__(kThreads) logs_kernel(const ThinArgs args) {
  const ThinArgs::Part& part = args.part[blockIdx.z];
  const int r = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (r >= part.queries * args.group) return;
  const int64_t head = static_cast<int64_t>(blockIdx.z) * args.heads + blockIdx.y;
  const float log =
      log_of(args.sums + (head * args.rows + r) * args.tiles, (part.n + kTileKeys - 1) / kTileKeys);
  if (lane == 0) args.logs[head * args.rows + r] = log;
}

// A thread per row and KV head of a part's order.
__global__ void __launch_bounds__(kThreads) order_kernel(const ThinArgs args) {
  const ThinArgs::Part& part = args.part[blockIdx.y];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = i / args.heads, h = i % args.heads;
  if (row >= part.n) return;
  args.put_order[part.base + i] = args.order[part.base + h * part.n + row];
}

// A thread per word in a kept row of a KV head, in k or v.
template <class Word>
__global__ void __launch_bounds__(kThreads) copy_kernel(const ThinArgs args, int words) {
  const ThinArgs::Part& part = args.part[blockIdx.y];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = i / words / args.heads;
  if (row >= part.keep) return;
  const int h = static_cast<int>(i / words % args.heads), word = static_cast<int>(i % words);
  const int64_t from = part.k_row + args.order[part.base + static_cast<int64_t>(h) * part.n + row];
  const auto* x = static_cast<const Word*>(blockIdx.z == 0 ? args.k : args.v);
  auto* y = static_cast<Word*>(blockIdx.z == 0 ? args.kept_k : args.kept_v);
  y[((part.to + row) * args.heads + h) * words + word] = x[(from * args.heads + h) * words + word];
}

// The first item in each separately sorted run, a KV head in a part; or the run's end.
struct RunEdge {
  int32_t base[kMostThinnedParts];
  int32_t n[kMostThinnedParts];
  int heads;
  int end;  // 0 or 1
  __host__ __device__ int32_t operator()(int run) const {
    return base[run / heads] + (run % heads + end) * n[run / heads];
  }
};

// None where another launch has made the scores.
int64_t scoring_queries(const ops::ThinnedPart& part) {
  return part.by == ops::ThinnedPart::By::scores ? 0 : part.queries;
}

// Places in the workspace.
struct Layout {
  int64_t items = 0, sums = 0, logs = 0, keys = 0, places = 0, sorted = 0, order = 0, sort = 0;
  int64_t bytes = 0;
  size_t sort_bytes = 0;
  int rows = 0, tiles = 0, runs = 0;
  RunEdge edge{};

  Layout(const ops::ThinKeysAttrs& attrs, int64_t heads) {
    int64_t most = 0, queries = 0;
    edge.heads = static_cast<int>(heads);
    for (size_t i = 0; i < attrs.parts.size(); ++i) {
      const ops::ThinnedPart& part = attrs.parts[i];
      edge.base[i] = static_cast<int32_t>(items);
      edge.n[i] = static_cast<int32_t>(part.rows);
      items += part.rows * heads;
      most = std::max(most, part.rows);
      queries = std::max(queries, scoring_queries(part));
    }
    const auto parts = static_cast<int64_t>(attrs.parts.size());
    rows = static_cast<int>(queries * attrs.group);
    tiles = static_cast<int>(ceil_div(most, int64_t{kTileKeys}));
    runs = static_cast<int>(parts * heads);
    check_cuda(sort_items(*this, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
               "size of a sort");
    const auto take = [&](int64_t size) {
      const int64_t at = bytes;
      bytes += round_up(size, int64_t{256});
      return at;
    };
    sums = take(parts * heads * rows * tiles * static_cast<int64_t>(sizeof(float2)));
    logs = take(parts * heads * rows * static_cast<int64_t>(sizeof(float)));
    keys = take(items * 4), places = take(items * 4);
    sorted = take(items * 4), order = take(items * 4);
    sort = take(static_cast<int64_t>(sort_bytes));
  }

  // Kernels alone: a sort of all items at once would clear counters by copy engines, and transfers
  // that other ranks wait for stand behind those in the same queue.
  static cudaError_t sort_items(Layout& l, void* temporary, const uint32_t* keys, uint32_t* sorted,
                                const int32_t* places, int32_t* order, cudaStream_t stream) {
    RunEdge end = l.edge;
    end.end = 1;
    const thrust::counting_iterator<int> run(0);
    return cub::DeviceSegmentedRadixSort::SortPairs(
        temporary, l.sort_bytes, keys, sorted, places, order, static_cast<int>(l.items), l.runs,
        thrust::make_transform_iterator(run, l.edge), thrust::make_transform_iterator(run, end), 0,
        32, stream);
  }
};

ThinArgs args_of(const ThinKeysParams& p, const Layout& l) {
  const ops::ThinKeysAttrs& attrs = *p.attrs;
  ThinArgs args{.k = p.k.data,
                .v = p.v.data,
                .scores = p.scores.as<const float>(),
                .kept_k = p.kept_k.data,
                .kept_v = p.kept_v.data,
                .put_order = p.order.as<int32_t>(),
                .parts = static_cast<int>(attrs.parts.size()),
                .heads = static_cast<int>(p.k.shape[2]),
                .group = static_cast<int>(attrs.group),
                .D = static_cast<int>(p.k.shape[3]),
                .recent = static_cast<int>(attrs.recent),
                .rows = l.rows,
                .tiles = l.tiles,
                .scale = attrs.scale,
                .inverse = inverse_of(static_cast<int>(attrs.group)),
                .sums = reinterpret_cast<float2*>(p.workspace + l.sums),
                .logs = reinterpret_cast<float*>(p.workspace + l.logs),
                .keys = reinterpret_cast<uint32_t*>(p.workspace + l.keys),
                .places = reinterpret_cast<int32_t*>(p.workspace + l.places),
                .sorted = reinterpret_cast<uint32_t*>(p.workspace + l.sorted),
                .order = reinterpret_cast<int32_t*>(p.workspace + l.order)};
  int64_t base = 0, to = 0;
  for (size_t i = 0; i < attrs.parts.size(); ++i) {
    const ops::ThinnedPart& part = attrs.parts[i];
    args.part[i] = {.q = part.by == ops::ThinnedPart::By::probes ? p.probes.data : p.q.data,
                    .q_row = part.q_row,
                    .k_row = part.k_row,
                    .n = static_cast<int32_t>(part.rows),
                    .queries = static_cast<int32_t>(scoring_queries(part)),
                    .sees = static_cast<int32_t>(part.sees),
                    .keep = static_cast<int32_t>(part.keep),
                    .sinks = static_cast<int32_t>(std::min(part.sinks, part.rows)),
                    .base = base,
                    .to = to};
    base += part.rows * args.heads;
    to += part.keep;
  }
  return args;
}

}  // namespace

void verify_scored_heads(std::string_view op, DType dtype, int64_t D) {
  if ((dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) || D > 256) {
    fail(ErrorCode::kUnsupported, "{}: {} heads of {}, wanted f32, bf16 or f16 of 256", op,
         name(dtype), D);
  }
}

void verify_thin_keys(const ops::ThinKeysAttrs& attrs, DType dtype, int64_t D) {
  verify_scored_heads("thin_keys", dtype, D);
  if (attrs.parts.size() > kMostThinnedParts) {
    fail(ErrorCode::kUnsupported,
         "thin_keys: {} parts, at most {}: GPUs take --levels of 16 ranks at most",
         attrs.parts.size(), kMostThinnedParts);
  }
}

int64_t thin_keys_workspace(const ops::ThinKeysAttrs& attrs, int64_t kv_heads) {
  return Layout(attrs, kv_heads).bytes;
}

void prepare_thin_keys(const ops::ThinKeysAttrs& attrs, DType dtype, int64_t kv_heads, int64_t D,
                       std::byte* workspace) {
  with_form(dtype, D, [&]<class T, class Tensor>(T, Tensor) {
    const size_t bytes = ScoreForm<T, Tensor::value>::bytes(static_cast<int>(D));
    allow_shared_memory(score_kernel<T, Tensor::value, false>, bytes);
    allow_shared_memory(score_kernel<T, Tensor::value, true>, bytes);
  });
  load_kernel(logs_kernel);
  load_kernel(order_kernel);
  load_kernel(copy_kernel<uint4>);
  load_kernel(copy_kernel<uint16_t>);
  if (attrs.parts.empty()) return;
  Layout l(attrs, kv_heads);
  const OwnedStream stream = make_stream();
  check_cuda(Layout::sort_items(l, workspace + l.sort,
                                reinterpret_cast<const uint32_t*>(workspace + l.keys),
                                reinterpret_cast<uint32_t*>(workspace + l.sorted),
                                reinterpret_cast<const int32_t*>(workspace + l.places),
                                reinterpret_cast<int32_t*>(workspace + l.order), stream.get()),
             "sort of keys");
  check_cuda(cudaStreamSynchronize(stream.get()), "load of a sort");
}

void thin_keys(const ThinKeysParams& p, LaunchContext context) {
  verify_thin_keys(*p.attrs, p.q.dtype, p.q.shape[3]);
  if (p.attrs->parts.empty()) return;
  context.pdl = false;  // the sort's kernels wait for nothing by themselves
  Layout layout(*p.attrs, p.k.shape[2]);
  const ThinArgs args = args_of(p, layout);
  const auto heads = static_cast<unsigned>(args.heads), parts = static_cast<unsigned>(args.parts);
  const auto warps = static_cast<unsigned>(ceil_div(args.rows, kThreads / 32));
  with_form(p.q.dtype, args.D, [&]<class T, class Tensor>(T, Tensor) {
    using Form = ScoreForm<T, Tensor::value>;
    const dim3 grid(static_cast<unsigned>(ceil_div(args.tiles, Form::kTiles)), heads, parts);
    const size_t bytes = Form::bytes(args.D);
    if (warps > 0) {
      launch_kernel(context, score_kernel<T, Tensor::value, false>, grid, Form::kThreads, bytes,
                    args);
      launch_kernel(context, logs_kernel, dim3(warps, heads, parts), kThreads, 0, args);
    }
    launch_kernel(context, score_kernel<T, Tensor::value, true>, grid, Form::kThreads, bytes, args);
  });
  check_cuda(Layout::sort_items(layout, p.workspace + layout.sort, args.keys, args.sorted,
                                args.places, args.order, context.stream),
             "sort of keys");
  int64_t keep = 0, rows = 0;
  for (const ops::ThinnedPart& part : p.attrs->parts) {
    keep = std::max(keep, part.keep);
    rows = std::max(rows, part.rows);
  }
  if (args.put_order != nullptr) {
    const int64_t blocks = ceil_div(rows * args.heads, int64_t{kThreads});
    launch_kernel(context, order_kernel, dim3(static_cast<unsigned>(blocks), parts), kThreads, 0,
                  args);
  }
  const int64_t row_bytes = bytes_of(p.k.dtype, p.k.shape[3]);
  const auto copy = [&]<class Word>(Word) {
    const int words = static_cast<int>(row_bytes / static_cast<int64_t>(sizeof(Word)));
    const int64_t blocks = ceil_div(keep * args.heads * words, int64_t{kThreads});
    launch_kernel(context, copy_kernel<Word>, dim3(static_cast<unsigned>(blocks), parts, 2),
                  kThreads, 0, args, words);
  };
  if (keep == 0) return;
  row_bytes % 16 == 0 ? copy(uint4{}) : copy(uint16_t{});
}

}  // namespace braid::cuda
