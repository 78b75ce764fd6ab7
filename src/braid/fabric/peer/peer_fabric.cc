#include "braid/fabric/peer/peer_fabric.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/peer/describe_expired.h"
#include "braid/fabric/peer/direct_link.h"
#include "braid/fabric/peer/pace.h"
#include "braid/fabric/rank_threads.h"

namespace braid::fabric {
namespace {

void validate_devices(PeerFabricConfig& config) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    fail(ErrorCode::kUnsupported, "peer fabric: no GPU ({})",
         error == cudaSuccess ? "none found" : cudaGetErrorString(error));
  }
  if (config.devices.empty()) {
    for (int r = 0; r < config.ranks; ++r) {
      config.devices.push_back(config.share_devices ? r % count : r);
    }
  }
  if (std::ssize(config.devices) != config.ranks) {
    fail(ErrorCode::kInvalidArgument, "peer fabric: {} GPUs named for {} ranks",
         config.devices.size(), config.ranks);
  }
  for (int r = 0; r < config.ranks; ++r) {
    const int device = config.devices[r];
    if (device < 0 || device >= count) {
      fail(ErrorCode::kUnsupported, "peer fabric: rank {} is to run on cuda:{}, there {} {} GPU{}",
           r, device, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    }
    if (!config.share_devices &&
        std::count(config.devices.begin(), config.devices.end(), device) > 1) {
      fail(ErrorCode::kInvalidArgument, "peer fabric: cuda:{} is given to several ranks", device);
    }
  }
}

void enable_peer_access(int device, int peer) {
  if (device == peer) return;
  int possible = 0;
  cuda::check_cuda(cudaDeviceCanAccessPeer(&possible, device, peer), "peer access");
  if (!possible) {
    fail(ErrorCode::kUnsupported, "peer fabric: cuda:{} has no peer path to cuda:{}", device, peer);
  }
  const cuda::DeviceScope guard(device);
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  cuda::check_cuda(error, fmt::format("peer access of cuda:{} to cuda:{}", device, peer).c_str());
}

// The same for optional access; returns whether access exists.
bool try_peer_access(int device, int peer) {
  int possible = device == peer;
  if (!possible) cuda::check_cuda(cudaDeviceCanAccessPeer(&possible, device, peer), "peer access");
  if (possible) enable_peer_access(device, peer);
  return possible;
}

}  // namespace

PeerFabric::PeerFabric(PeerFabricConfig config) : config_(std::move(config)) {
  if (config_.ranks < 1 || config_.ranks > kMaxRanks) {
    fail(ErrorCode::kInvalidArgument, "{} ranks, must be 1 to {}", config_.ranks, kMaxRanks);
  }
  for (Duration deadline : {config_.deadline, config_.device_deadline}) {
    if (deadline <= Duration::zero()) {
      fail(ErrorCode::kInvalidArgument, "deadline of {} s, must be positive",
           std::chrono::duration<double>(deadline).count());
    }
  }
  config_.links.validate(config_.ranks);
  if (config_.links.machine_link || config_.links.jitter) {
    fail(ErrorCode::kUnsupported, "peer fabric: emulates the link between machines only, not {}",
         config_.links.jitter ? "jitter" : "the one within a machine");
  }
  validate_devices(config_);
  const LinkModel& links = config_.links;
  for (int a = 0; a < config_.ranks; ++a) {
    for (int b = 0; b < config_.ranks; ++b) {
      if (links.between(a, b, config_.ranks) != LinkClass::cluster) {
        enable_peer_access(config_.devices[a], config_.devices[b]);
        reach_.push_back(true);
      } else {  // for words that kernels signal with
        reach_.push_back(try_peer_access(config_.devices[a], config_.devices[b]));
      }
    }
  }
  const auto make = [&](PeerSegment::Where where, const char* name, int64_t bytes) {
    return std::make_shared<PeerSegment>(table_, links, config_.devices, where, name, bytes);
  };
  control_ = make(PeerSegment::Where::device, "fabric/control", sizeof(PeerControl));
  reports_ = make(PeerSegment::Where::host, "fabric/reports", sizeof(WaitReport));
  staged_.resize(config_.ranks * config_.ranks);
  for (int a = 0; a < config_.ranks; ++a) {
    const cuda::DeviceScope guard(config_.devices[a]);
    load_pace();
    abort_streams_.push_back(cuda::make_stream());
  }
  proxies_.resize(config_.ranks * config_.ranks);
  for (int rank = 0; rank < config_.ranks; ++rank) {
    ports_.push_back(std::make_shared<LinkPort>());
    endpoints_.push_back(std::make_unique<PeerEndpoint>(*this, rank));
  }
}

PeerFabric::~PeerFabric() = default;

PeerEndpoint& PeerFabric::endpoint(int rank) {
  BRAID_CHECK(rank >= 0 && rank < config_.ranks, "rank {} of {}", rank, config_.ranks);
  return *endpoints_[rank];
}

std::string PeerFabric::describe() const {
  std::string devices;
  for (int device : config_.devices) {
    devices += fmt::format("{}cuda:{}", devices.empty() ? "" : ", ", device);
  }
  return fmt::format("peer fabric, {} rank{} on {}, {}", config_.ranks,
                     config_.ranks == 1 ? "" : "s", devices, config_.links.describe(config_.ranks));
}

void PeerFabric::abort(int rank, std::exception_ptr error) {
  error_.set(rank, error);
  static const uint32_t kAborted = 1;
  for (int r = 0; r < config_.ranks; ++r) {
    // A lost device can take no word; its kernels wait no more either.
    cudaMemcpyAsync(control_->part(r) + offsetof(PeerControl, aborted), &kAborted, sizeof(kAborted),
                    cudaMemcpyDefault, abort_streams_[r].get());
  }
}

void PeerFabric::rethrow_error() const {
  error_.rethrow();
}

std::string PeerFabric::expired(int rank) {
  auto& report = *reinterpret_cast<WaitReport*>(reports_->part(rank));
  if (std::atomic_ref(report.expired).load(std::memory_order_acquire) == 0) return {};
  std::string text =
      describe_expired(rank, report, tags_.name(Tag{static_cast<uint16_t>(report.tag)}));
  const std::unique_lock lock(links_mutex_, std::try_to_lock);
  if (!lock) return text;
  for (const auto& proxy : proxies_) {
    if (proxy) text += proxy->describe_open();
  }
  return text;
}

void PeerFabric::check(int rank) {
  if (const std::string mine = expired(rank); !mine.empty()) {
    const Error error(ErrorCode::kDeadline, mine);
    error_.set(rank, std::make_exception_ptr(error));
    throw error;
  }
  for (int r = 0; r < config_.ranks; ++r) {
    // A kernel may report before the rank's own thread: the job ends with the same error.
    if (const std::string other = expired(r); !other.empty()) {
      error_.set(r, std::make_exception_ptr(Error(ErrorCode::kDeadline, other)));
    }
  }
  error_.check(rank);
}

std::shared_ptr<PeerSegment> PeerFabric::allocate(int rank, int64_t index, int64_t bytes,
                                                  PeerSegment::Where where, std::string_view name) {
  return allocations_.take(rank, config_.ranks, index, bytes, name, [&] {
    return std::make_shared<PeerSegment>(table_, config_.links, config_.devices, where,
                                         std::string(name), bytes);
  });
}

StagedLink& PeerFabric::staged(int from, int to) {
  std::lock_guard lock(links_mutex_);
  auto& link = staged_[from * config_.ranks + to];
  if (!link) {
    auto* const control = reinterpret_cast<PeerControl*>(control_->part(from));
    link = std::make_unique<StagedLink>(config_.devices[from], config_.devices[to],
                                        config_.links.cluster_link, &control->port_free_at);
  }
  return *link;
}

LinkProxy& PeerFabric::proxy(int from, int to) {
  std::lock_guard lock(links_mutex_);
  const LinkClass link = config_.links.between(from, to, config_.ranks);
  const bool direct = link != LinkClass::cluster;
  // Copies to several peers at once are slower than one after the other.
  auto& proxy = proxies_[from * config_.ranks + (direct ? from : to)];
  if (proxy) return *proxy;
  const LinkProxy::Sender sender{from, config_.devices[from], config_.device_deadline, error_};
  if (direct) {
    proxy = std::make_unique<DirectLink>(sender);
  } else {
    proxy = std::make_unique<AdapterLink>(sender, config_.devices[to], config_.links.speed(link),
                                          ports_[from]);
  }
  return *proxy;
}

void run_ranks(PeerFabric& fabric, const std::function<void(PeerEndpoint&)>& fn) {
  run_rank_threads(fabric, [&](int rank) {
    PeerEndpoint& endpoint = fabric.endpoint(rank);
    cuda::check_cuda(cudaSetDevice(endpoint.device()), "choice of the device");
    fn(endpoint);
  });
}

}  // namespace braid::fabric
