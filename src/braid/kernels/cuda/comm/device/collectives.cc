#include "braid/kernels/cuda/comm/device/collectives.h"

#include "braid/base/error.h"
#include "braid/kernels/cuda/comm/device/across_machines.h"
#include "braid/kernels/cuda/comm/device/kernels.h"
#include "braid/kernels/cuda/comm/device/norm_kernel.h"

namespace braid::cuda {
namespace {

void require_symmetric(const CollectiveDesc& desc, const void* address, const char* what) {
  if (address) return;
  fail(ErrorCode::kInvalidArgument, "{}: {} is not in memory that the peers can reach",
       to_string(desc), what);
}

bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

void launch_reduce(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveParams& params,
                   const CollectiveConfig& config, const LaunchContext& context) {
  ReduceParams p{};
  p.rows = desc.rows;
  p.cols = desc.cols;
  p.live = params.live_rows;
  p.scatter = desc.op == CollectiveOp::reduce_scatter;
  const bool direct = config.algorithm == CommAlgorithm::direct;
  p.own_x = static_cast<const std::byte*>(params.x);
  p.own_y = static_cast<std::byte*>(params.y);
  for (int q = 0; direct && q < comm.size(); ++q) {
    p.x[q] = comm.at_peer(params.x, q);
    require_symmetric(desc, p.x[q], "x");
    if (q != comm.index() && p.scatter) continue;
    p.y[q] = comm.at_peer(params.y, q);
    require_symmetric(desc, p.y[q], "y");
  }
  const int lines = is_aligned(params.x) && is_aligned(params.y) ? lines_at_once(desc, config) : 0;
  const auto kernel =
      direct      ? direct_reduce_kernel_of(desc.dtype, comm.size(), config.unroll)
      : lines > 0 ? line_reduce_once_kernel_of(desc.dtype, config.line_data, lines, comm.size())
                  : line_reduce_kernel_of(desc.dtype, config.line_data, p.scatter);
  launch_kernel(context, kernel, dim3(config.ctas), dim3(config.threads), 0,
                comm.view(comm.tag(desc.op)), p);
}

MoveParams move_params(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveParams& params,
                       bool direct) {
  MoveParams p{};
  p.x = static_cast<const std::byte*>(params.x);
  p.rows = desc.rows;
  p.row_bytes = desc.cols * info(desc.dtype).block_bytes;
  p.live = params.live_rows;
  p.to_all = desc.op == CollectiveOp::all_to_all;
  p.own_y = static_cast<std::byte*>(params.y);
  for (int q = 0; direct && q < comm.size(); ++q) {
    p.y[q] = comm.at_peer(params.y, q);
    require_symmetric(desc, p.y[q], "y");
  }
  return p;
}

void launch_move(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveParams& params,
                 const CollectiveConfig& config, const LaunchContext& context) {
  const bool direct = config.algorithm == CommAlgorithm::direct;
  const auto kernel =
      direct ? direct_move_kernel_of(config.unroll) : line_move_kernel_of(config.line_data);
  launch_kernel(context, kernel, dim3(config.ctas), dim3(config.threads), 0,
                comm.view(comm.tag(desc.op)), move_params(comm, desc, params, direct));
}

// The copies need no SM; both barriers around the copies are kernels of a single CTA.
void launch_copies(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveParams& params,
                   const LaunchContext& context) {
  const MoveParams p = move_params(comm, desc, params, true);
  const CommView view = comm.view(comm.tag(desc.op));
  const LaunchContext plain{context.stream, false};
  launch_kernel(plain, barrier_kernel_of(), dim3(1), dim3(32), 0, view);
  for (int k = 1; k <= comm.size(); ++k) {
    const int q = (comm.index() + k) % comm.size();
    const Piece piece = piece_of(p.to_all, p.rows, p.row_bytes, comm.size(), comm.index(), q);
    if (piece.bytes == 0 || p.x + piece.src == p.y[q] + piece.dst) continue;
    check_cuda(cudaMemcpyAsync(p.y[q] + piece.dst, p.x + piece.src, piece.bytes, cudaMemcpyDefault,
                               context.stream),
               "copy to a peer");
  }
  launch_kernel(plain, barrier_kernel_of(), dim3(1), dim3(32), 0, view);
}

void launch_staged(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveParams& params,
                   const LaunchContext& context) {
  AcrossParams p{};
  p.op = desc.op;
  p.x = static_cast<const std::byte*>(params.x);
  p.y = static_cast<std::byte*>(params.y);
  p.rows = desc.rows;
  p.row_bytes = desc.cols * info(desc.dtype).block_bytes;
  p.live = params.live_rows;
  const bool sums = desc.op == CollectiveOp::all_reduce || desc.op == CollectiveOp::reduce_scatter;
  comm.across()->run(to_string(desc), p, sums ? sum_kernel_of(desc.dtype) : place_kernel_of(),
                     comm.tag(desc.op), context);
}

}  // namespace

void prepare(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveConfig& config) {
  if (config.algorithm != CommAlgorithm::staged) return;
  verify(desc, config, comm.limits());
  std::vector<int64_t> put;
  for (int q = 0; q < comm.size(); ++q) {
    put.push_back(volume(desc, config.algorithm, comm.index(), q).put);
  }
  comm.across()->prepare(
      to_string(desc), put, line_payload(desc),
      desc.op == CollectiveOp::all_reduce || desc.op == CollectiveOp::all_gather);
}

CollectiveDesc describe(const DeviceComm& comm, CollectiveOp op, DType dtype, int64_t rows,
                        int64_t cols, const CollectiveParams& params) {
  return {.op = op,
          .dtype = dtype,
          .ranks = comm.size(),
          .rows = rows,
          .cols = cols,
          .live_rows = params.live_rows != nullptr,
          .x_symmetric = comm.is_symmetric(params.x),
          .y_symmetric = comm.is_symmetric(params.y),
          .own_in_place = op == CollectiveOp::all_gather && !params.live_rows &&
                          params.x == static_cast<const std::byte*>(params.y) +
                                          even_part(rows, comm.size(), comm.index()).begin * cols *
                                              info(dtype).block_bytes};
}

void collective(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveParams& params,
                const CollectiveConfig& config, const LaunchContext& context) {
  verify(desc, config, comm.limits());
  if (desc.ranks != comm.size() || desc.live_rows != (params.live_rows != nullptr)) {
    fail(ErrorCode::kInvalidArgument, "{}: the comm has {} ranks, and live rows are{} given",
         to_string(desc), comm.size(), params.live_rows ? "" : " not");
  }
  if (config.algorithm == CommAlgorithm::staged) {
    launch_staged(comm, desc, params, context);
    return;
  }
  for (int q = 0; q < comm.size(); ++q) {
    comm.count(comm.tag(desc.op), q, volume(desc, config.algorithm, comm.index(), q));
  }
  if (config.algorithm == CommAlgorithm::copy_engine) {
    launch_copies(comm, desc, params, context);
  } else if (desc.op == CollectiveOp::all_reduce || desc.op == CollectiveOp::reduce_scatter) {
    launch_reduce(comm, desc, params, config, context);
  } else {
    launch_move(comm, desc, params, config, context);
  }
}

void all_reduce_add_rms_norm(DeviceComm& comm, const ReduceNormParams& params,
                             const ReduceNormConfig& config, const LaunchContext& context) {
  const int64_t bytes = params.rows * params.cols * (params.dtype == DType::f32 ? 4 : 2);
  const bool known = (params.dtype == DType::bf16 || params.dtype == DType::f32) &&
                     (params.w_dtype == DType::bf16 || params.w_dtype == DType::f32);
  const bool covers = int64_t{8} * config.threads * config.units >= params.cols;
  if (!known || params.cols % 8 != 0 || params.rows < 1 || bytes > comm.limits().line_bytes ||
      !covers || config.spread < 1 || config.row_groups < 1 ||
      config.spread * config.row_groups > kMaxCommCtas || config.threads > kMaxCommThreads ||
      config.threads % 32 != 0) {
    fail(ErrorCode::kUnsupported,
         "all_reduce_add_rms_norm: x {} [{}, {}], w {} as {}: x and w must be bf16 or f32, cols a "
         "multiple of 8 that the threads cover, x at most {} bytes",
         name(params.dtype), params.rows, params.cols, params.s == params.r ? " in place" : "",
         name(params.w_dtype), to_string(config), comm.limits().line_bytes);
  }
  const int spread = params.s == params.r ? 1 : config.spread;
  for (int q = 0; q < comm.size(); ++q) {
    comm.count(comm.norm_tag(), q, {.put = q == comm.index() ? 0 : bytes});
  }
  const ReduceNormKernelParams p{.x = params.x,
                                 .r = params.r,
                                 .w = params.w,
                                 .s = params.s,
                                 .y = params.y,
                                 .rows = params.rows,
                                 .cols = params.cols,
                                 .live = params.live_rows,
                                 .eps = params.eps,
                                 .w_bf16 = params.w_dtype == DType::bf16,
                                 .spread = spread};
  const bool once = config.units == 1 && config.row_groups >= params.rows && params.s != params.r;
  launch_kernel(context,
                once ? reduce_norm_once_kernel_of(params.dtype, comm.size())
                     : reduce_norm_kernel_of(params.dtype, config.units),
                dim3(spread * config.row_groups), dim3(config.threads), 0,
                comm.view(comm.norm_tag()), p);
}

void reduce_scatter_add_rms_norm_all_gather(DeviceComm& comm, const ReduceNormParams& params,
                                            const ReduceNormConfig& config,
                                            const LaunchContext& context) {
  constexpr const char* kOp = "reduce_scatter_add_rms_norm_all_gather";
  const bool known = (params.dtype == DType::bf16 || params.dtype == DType::f32) &&
                     (params.w_dtype == DType::bf16 || params.w_dtype == DType::f32);
  if (!known || params.cols % 8 != 0 || params.rows < 1 || config.spread != 1 ||
      int64_t{8} * config.threads * config.units < params.cols || config.row_groups < 1 ||
      config.row_groups > kMaxCommCtas || config.threads > kMaxCommThreads ||
      config.threads % 32 != 0) {
    fail(
        ErrorCode::kUnsupported,
        "{}: x {} [{}, {}], w {} as {}: x and w must be bf16 or f32, cols a multiple of 8 that the "
        "threads of a CTA cover",
        kOp, name(params.dtype), params.rows, params.cols, name(params.w_dtype), to_string(config));
  }
  ScatterNormKernelParams p{};
  for (int q = 0; q < comm.size(); ++q) {
    p.x[q] = comm.at_peer(params.x, q);
    p.y[q] = comm.at_peer(params.y, q);
    if (!p.x[q] || !p.y[q]) {
      fail(ErrorCode::kInvalidArgument, "{}: {} is not in memory that the peers can reach", kOp,
           p.x[q] ? "y" : "x");
    }
  }
  p.r = params.r;
  p.w = params.w;
  p.s = params.s;
  p.rows = params.rows;
  p.cols = params.cols;
  p.live = params.live_rows;
  p.eps = params.eps;
  p.w_bf16 = params.w_dtype == DType::bf16;
  const int64_t row_bytes = params.cols * (params.dtype == DType::f32 ? 4 : 2);
  const int64_t bytes = even_part(params.rows, comm.size(), comm.index()).size() * row_bytes;
  for (int q = 0; q < comm.size(); ++q) {
    if (q != comm.index()) comm.count(comm.scatter_norm_tag(), q, {.put = bytes, .get = bytes});
  }
  launch_kernel(context, scatter_norm_kernel_of(params.dtype, config.units),
                dim3(config.row_groups), dim3(config.threads), 0,
                comm.view(comm.scatter_norm_tag()), p);
}

void put(DeviceComm& comm, void* dst, int peer, const void* src, int64_t bytes,
         cudaStream_t stream) {
  std::byte* const to = comm.at_peer(dst, peer);
  BRAID_CHECK(to != nullptr, "put of {} bytes to rank {}: dst is not symmetric", bytes, peer);
  if (peer != comm.index()) comm.count(comm.stream_tag(), peer, {.put = bytes});
  check_cuda(cudaMemcpyAsync(to, src, bytes, cudaMemcpyDefault, stream), "put");
}

void signal(DeviceComm& comm, int slot, int peer, const LaunchContext& context) {
  BRAID_CHECK(slot >= 0 && slot < kMaxStreamSignals && peer >= 0 && peer < comm.size(),
              "signal {} to rank {}", slot, peer);
  const fabric::Endpoint& e = comm.endpoint();
  comm.endpoint().traffic().add(comm.stream_tag(), fabric::Verb::signal,
                                e.link(e.rank(), comm.group()[peer]), 4);
  launch_kernel(context, stream_signal_kernel_of(), dim3(1), dim3(1), 0,
                comm.view(comm.stream_tag()), slot, peer);
}

void wait(DeviceComm& comm, int slot, int from, const LaunchContext& context) {
  BRAID_CHECK(slot >= 0 && slot < kMaxStreamSignals && from >= 0 && from < comm.size(),
              "wait for signal {} from rank {}", slot, from);
  launch_kernel(context, stream_wait_kernel_of(), dim3(1), dim3(1), 0, comm.view(comm.stream_tag()),
                slot, from);
}

}  // namespace braid::cuda
