#include "braid/kernels/cuda/comm/device/device_comm.h"

#include <algorithm>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/device.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/comm/device/across_machines.h"
#include "braid/kernels/cuda/comm/device/kernels.h"
#include "braid/kernels/cuda/comm/device/norm_kernel.h"
#include "braid/kernels/cuda/comm/device/one_sided_kernels.h"

namespace braid::cuda {
namespace {

// A slot's lines with `bytes` as lines of 8, in whole units of either kind; bare lines need half as
// many.
int64_t lines_for(int64_t bytes) {
  return round_up(ceil_div(bytes, 16) * 2 + 8, 8);
}

}  // namespace

void load_kernels() {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (int line_data : {8, 12}) {
      for (bool scatter : {false, true})
        load_kernel(line_reduce_kernel_of(dtype, line_data, scatter));
    }
    for (int line_data : {12, 16}) {
      for (int lines : {1, 2, 4}) {
        for (int ranks : {2, 3})
          load_kernel(line_reduce_once_kernel_of(dtype, line_data, lines, ranks));
      }
    }
    for (int ranks : {2, 3, 4}) {
      for (int unroll : {4, 8}) load_kernel(direct_reduce_kernel_of(dtype, ranks, unroll));
    }
  }
  for (DType dtype : {DType::bf16, DType::f32}) {
    for (int units : {1, 2, 4}) {
      load_kernel(reduce_norm_kernel_of(dtype, units));
      load_kernel(scatter_norm_kernel_of(dtype, units));
    }
    for (int ranks : {2, 3}) load_kernel(reduce_norm_once_kernel_of(dtype, ranks));
  }
  for (int line_data : {8, 12}) load_kernel(line_move_kernel_of(line_data));
  for (int unroll : {4, 8}) load_kernel(direct_move_kernel_of(unroll));
  load_kernel(barrier_kernel_of());
  load_kernel(ask_kernel_of());
  load_kernel(wait_kernel_of());
  load_kernel(pack_kernel_of());
  load_kernel(push_kernel_of());
  load_kernel(place_kernel_of());
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) load_kernel(sum_kernel_of(dtype));
  load_kernel(stream_signal_kernel_of());
  load_kernel(stream_wait_kernel_of());
}

DeviceComm::DeviceComm(fabric::DeviceEndpoint& endpoint, fabric::Group group,
                       DeviceCommConfig config)
    : endpoint_(endpoint),
      group_(std::move(group)),
      index_(group_.validate(endpoint.world_size(), endpoint.rank())),
      name_(config.name) {
  if (size() > kMaxCommRanks) {
    fail(ErrorCode::kUnsupported, "comm '{}': {} ranks, at most {}", config.name, size(),
         kMaxCommRanks);
  }
  if (config.line_bytes < 64 || config.line_bytes > (int64_t{1} << 30)) {
    fail(ErrorCode::kInvalidArgument, "comm '{}': line_bytes {}, must be 64 to 2^30", config.name,
         config.line_bytes);
  }
  const DeviceScope guard(endpoint.device());
  int sms = 0;
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, endpoint.device()),
             "SM count");
  limits_ = {.line_bytes = config.line_bytes,
             .max_ctas = std::clamp(config.max_ctas, 1, std::min(sms, kMaxCommCtas))};
  for (int p = 0; p < size(); ++p) {
    limits_.across_machines |= endpoint.link(endpoint.rank(), group_[p]) == LinkClass::cluster;
  }
  if (limits_.across_machines) limits_.line_bytes = 0;
  const char* const names[] = {
      "all_reduce", "reduce_scatter",          "all_gather",
      "all_to_all", "all_reduce_add_rms_norm", "reduce_scatter_add_rms_norm_all_gather",
      "stream"};
  for (int i = 0; i < 7; ++i) tags_[i] = endpoint.tag(config.name + "/" + names[i]);

  const int64_t lines = lines_for(config.line_bytes);
  const int world = endpoint.world_size();
  const int64_t slot_bytes = lines * static_cast<int64_t>(sizeof(uint4));
  const int64_t bytes = 3 * world * slot_bytes, bare = 2 * size() * slot_bytes;
  staging_ = endpoint.allocate<std::byte>(bytes, config.name + "/lines");
  // Memory behind the group's epoch lines, the bare lines, begins empty (kNoWord).
  check_cuda(cudaMemset(staging_.data() + bare, 0xff, bytes - bare), "lines");
  check_cuda(cudaDeviceSynchronize(), "lines");
  control_ = endpoint.allocate<CommControl>(1, config.name + "/control");
  ready_ = endpoint.allocate<fabric::Signal>(world, config.name + "/ready");

  view_ = {};
  view_.rank = index_;
  view_.ranks = size();
  view_.deadline_ns = config.deadline > fabric::Duration{0}
                          ? static_cast<uint64_t>(config.deadline.count())
                          : endpoint.verbs().deadline_ns;
  view_.report = endpoint.verbs().report;
  view_.lines = lines;
  for (int p = 0; p < size(); ++p) {
    view_.world_rank[p] = group_[p];
    const auto reached = [&](const void* own) {
      std::byte* const there = endpoint.reach(own, group_[p]);
      if (there != nullptr) return there;
      fail(ErrorCode::kUnsupported, "comm '{}': kernels of rank {} have no path to rank {}",
           config.name, endpoint.rank(), group_[p]);
    };
    view_.staging[p] = reinterpret_cast<uint4*>(reached(staging_.data()));
    view_.control[p] = reinterpret_cast<CommControl*>(reached(control_.data()));
    view_.peer_control[p] = endpoint.verbs().control[group_[p]];
  }
  if (limits_.across_machines) across_ = std::make_unique<AcrossMachines>(*this);
  view_.own = view_.control[index_];
  view_.aborted = &view_.peer_control[index_]->aborted;
  view_.own_staging = view_.staging[index_];
  view_.next_staging = view_.staging[(index_ + 1) % size()];
  load_kernels();
  for (int p = 0; p < world; ++p) {
    endpoint.signal(ready_.at(endpoint.rank()), p, fabric::SignalOp::set, 1, stream_tag());
  }
  for (int p = 0; p < world; ++p) {
    endpoint.wait(ready_.at(p), 1, {.tag = stream_tag(), .from = p});
  }
}

DeviceComm::~DeviceComm() = default;

std::byte* DeviceComm::at_peer(const void* local, int index) const {
  if (index == index_) return static_cast<std::byte*>(const_cast<void*>(local));
  const auto place = endpoint_.place(local);
  if (!place) return nullptr;
  std::byte* const part = place->segment->map(endpoint_.rank(), group_[index]);
  return part ? part + place->offset : nullptr;
}

CommView DeviceComm::view(fabric::Tag tag) const {
  CommView view = view_;
  view.tag = tag.id;
  return view;
}

void DeviceComm::count(fabric::Tag tag, int peer, const CommVolume& volume) const {
  const LinkClass link = endpoint_.link(endpoint_.rank(), group_[peer]);
  if (volume.put > 0) endpoint_.traffic().add(tag, fabric::Verb::put, link, volume.put);
  if (volume.get > 0) endpoint_.traffic().add(tag, fabric::Verb::get, link, volume.get);
}

}  // namespace braid::cuda
