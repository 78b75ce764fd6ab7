#include "braid/fabric/ucx/ucx_worker.h"

#include <poll.h>
#include <ucs/config/global_opts.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "braid/fabric/ucx/resolve.h"
#include "braid/fabric/ucx/ucx_status.h"

namespace braid::fabric {
namespace {

using Clock = std::chrono::steady_clock;

// TCP packets. Data that fit are sent at once; others wait for the receiver's answer.
constexpr int64_t kTcpPacket = 288 << 10;
constexpr int64_t kMostAtOnce = 256 << 10;

constexpr int kSleepMs = 100;  // longest sleep of the thread between looks for the end

bool at_once(bool tcp, int64_t bytes) {
  return tcp && bytes <= kMostAtOnce;
}

// A user's settings stay.
void set_switches() {
  // UCX reads the variable while it is loaded: setting the variable here is too late.
  if (!std::getenv("UCX_LOG_LEVEL")) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  setenv("UCX_KEEPALIVE_INTERVAL", "1s", 0);
  // UCX's own packets have 8 KiB, each with a system call.
  const std::string packet = std::to_string(kTcpPacket);
  setenv("UCX_TCP_TX_SEG_SIZE", packet.c_str(), 0);
  setenv("UCX_TCP_RX_SEG_SIZE", packet.c_str(), 0);
  // Inside a host UCX's shared memory learns late, or never, about an ended process: the job's
  // monitor watches for ends itself, so shared memory may be used.
  setenv("UCX_POSIX_ERROR_HANDLING", "y", 0);
  setenv("UCX_SYSV_ERROR_HANDLING", "y", 0);
}

}  // namespace

UcxWorker::UcxWorker(OnLost on_lost) : on_lost_(std::move(on_lost)), routes_(kIds) {
  set_switches();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_config_t* config = nullptr;
  require_ucs(ucp_config_read(nullptr, nullptr, &config), "reading its configuration");
  const ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  require_ucs(status, "starting");
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // mutex_ sees to it
  require_ucs(ucp_worker_create(context_, &worker, &worker_), "making a worker");
  require_ucs(ucp_worker_get_efd(worker_, &event_), "a file descriptor for arrivals");
  for (unsigned id = 0; id < kIds; ++id) {
    routes_[id].worker = this;
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = arrived;
    handler.arg = &routes_[id];
    require_ucs(ucp_worker_set_am_recv_handler(worker_, &handler), "setting a handler");
  }
  thread_ = std::thread([this] { run(); });
}

UcxWorker::~UcxWorker() {
  stop_ = true;
  {
    std::lock_guard lock(mutex_);
    ends_expected_ = true;
    for (Route& route : routes_) route.receiver = nullptr;
    ucp_worker_signal(worker_);
  }
  thread_.join();
  for (Peer& peer : peers_) close(peer.endpoint, peer.lost);
  for (const auto& visitor : visitors_) close(visitor->endpoint, true);
  if (listener_) ucp_listener_destroy(listener_);
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

void UcxWorker::run() {
  while (!stop_) {
    bool armed = false;
    {
      std::lock_guard lock(mutex_);
      while (ucp_worker_progress(worker_) != 0 && !stop_) {
      }
      armed = ucp_worker_arm(worker_) == UCS_OK;
    }
    pollfd fd{.fd = event_, .events = POLLIN, .revents = 0};
    if (armed) poll(&fd, 1, kSleepMs);
  }
}

bool UcxWorker::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && ucp_worker_progress(worker_) != 0;
}

std::string UcxWorker::address() {
  std::lock_guard lock(mutex_);
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  require_ucs(ucp_worker_get_address(worker_, &address, &bytes), "its address");
  std::string result(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return result;
}

UcxWorker::Peer& UcxWorker::peer(int process) {
  while (std::ssize(peers_) <= process) peers_.push_back({this, static_cast<int>(peers_.size())});
  return peers_[static_cast<size_t>(process)];
}

ucp_ep_h UcxWorker::create(ucp_ep_params_t params, Peer& peer, std::string_view what) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                       UCP_EP_PARAM_FIELD_USER_DATA;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = broken;
  params.err_handler.arg = &peer;
  params.user_data = &peer;
  ucp_ep_h endpoint = nullptr;
  require_ucs(ucp_ep_create(worker_, &params, &endpoint), what);
  return endpoint;
}

void UcxWorker::connect(int process, const std::string& address) {
  std::lock_guard lock(mutex_);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  Peer& to = peer(process);
  to.endpoint = create(params, to, fmt::format("no connection to process {}", process));
  to.tcp = transports(process).starts_with("tcp");
}

void UcxWorker::receive(unsigned id, UcxReceiver* receiver) {
  std::lock_guard lock(mutex_);
  routes_.at(id).receiver = receiver;
}

int UcxWorker::listen(const std::string& host) {
  std::lock_guard lock(mutex_);
  ucs_status_t status = UCS_OK;
  for (const SocketAddress& address : resolve(host, 0)) {
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = address.view();
    params.conn_handler.cb = knocked;
    params.conn_handler.arg = this;
    status = ucp_listener_create(worker_, &params, &listener_);
    if (status != UCS_OK) continue;
    ucp_listener_attr_t made{};
    made.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    require_ucs(ucp_listener_query(listener_, &made), "the port of its listener");
    SocketAddress at{.storage = made.sockaddr, .bytes = sizeof(made.sockaddr)};
    return at.port();
  }
  fail(ErrorCode::kResource, "UCX cannot listen at {}: {} ({})", host, ucs_status_string(status),
       describe(resolve(host, 0)));
}

bool UcxWorker::knock(const std::string& host, int port, unsigned id,
                      std::span<const std::byte> header, std::span<const std::byte> data,
                      std::chrono::nanoseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  for (const SocketAddress& address : resolve(host, port)) {
    Peer* visitor = nullptr;
    const auto message = std::make_shared<UcxSend>();
    {
      std::lock_guard lock(mutex_);
      visitors_.push_back(std::make_unique<Peer>(Peer{this, -1}));
      visitor = visitors_.back().get();
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
      params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
      params.sockaddr = address.view();
      visitor->endpoint = create(params, *visitor, fmt::format("no way to {}", address.text()));
      message->header.assign(header.begin(), header.end());
      message->packed.assign(data.begin(), data.end());
      post(*visitor, id, message->packed, message);
    }
    const auto lost = [&] {
      std::lock_guard lock(mutex_);
      return visitor->lost;
    };
    while (!message->complete && !lost() && Clock::now() < end) {
      if (!progress()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    std::lock_guard lock(mutex_);
    if (message->complete && !message->failed) return true;
    close(visitor->endpoint, true);
    visitor->endpoint = nullptr;
  }
  return false;
}

void UcxWorker::knocked(ucp_conn_request_h request, void* worker) {
  UcxWorker& self = *static_cast<UcxWorker*>(worker);
  self.visitors_.push_back(std::make_unique<Peer>(Peer{&self, -1}));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  try {
    self.visitors_.back()->endpoint =
        self.create(params, *self.visitors_.back(), "taking a connection");
  } catch (const Error&) {
    self.visitors_.pop_back();  // the visitor tries again, or reports that nobody answers
  }
}

void UcxWorker::broken(void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  Peer& peer = *static_cast<Peer*>(arg);
  if (std::exchange(peer.lost, true)) return;
  UcxWorker& self = *peer.worker;
  if (peer.process >= 0 && !self.ends_expected_ && self.on_lost_) {
    self.on_lost_(peer.process, ucs_status_string(status));
  }
}

ucs_status_t UcxWorker::arrived(void* arg, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) {
  const Route& route = *static_cast<Route*>(arg);
  UcxPayload payload(route.worker->worker_, data, static_cast<int64_t>(bytes), param->recv_attr);
  if (route.receiver) {
    route.receiver->arrived({static_cast<const std::byte*>(header), header_bytes}, payload);
  }
  return payload.gone_ ? UCS_INPROGRESS : UCS_OK;
}

void UcxWorker::sent(void* request, ucs_status_t status, void* user) {
  const std::shared_ptr<UcxSend> send = std::move(static_cast<UcxSend*>(user)->self);
  if (status != UCS_OK) send->failed = true;
  send->complete = true;
  if (send->done) send->done();
  ucp_request_free(request);
}

void UcxWorker::post(const Peer& to, unsigned id, std::span<const std::byte> data,
                     const std::shared_ptr<UcxSend>& send) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = sent;
  param.user_data = send.get();
  if (at_once(to.tcp, std::ssize(data))) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
  }
  void* const request = ucp_am_send_nbx(to.endpoint, id, send->header.data(), send->header.size(),
                                        data.data(), data.size(), &param);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
    send->self = send;
    return;
  }
  if (request != nullptr) send->failed = true;
  send->complete = true;
  if (send->done) send->done();
}

void UcxWorker::send(int process, unsigned id, std::span<const std::byte> header,
                     std::span<const std::byte> data, const std::shared_ptr<UcxSend>& send) {
  BRAID_CHECK(std::ssize(header) <= kMostHeader, "a header of {} bytes", header.size());
  send->header.assign(header.begin(), header.end());
  std::lock_guard lock(mutex_);
  const Peer& to = peer(process);
  if (to.endpoint && !to.lost) return post(to, id, data, send);
  send->failed = true;
  send->complete = true;
  if (send->done) send->done();
}

void UcxWorker::send_copy(int process, unsigned id, std::span<const std::byte> header,
                          std::span<const std::byte> data) {
  const auto message = std::make_shared<UcxSend>();
  message->packed.assign(data.begin(), data.end());
  send(process, id, header, message->packed, message);
}

bool UcxWorker::sends_at_once(int process, int64_t bytes) {
  return at_once(peer(process).tcp, bytes);
}

void UcxWorker::close(ucp_ep_h endpoint, bool force) {
  if (endpoint == nullptr) return;
  ucp_request_param_t param{};
  if (force) {
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  }
  void* const request = ucp_ep_close_nbx(endpoint, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) return;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
  while (ucp_request_check_status(request) == UCS_INPROGRESS && Clock::now() < end) {
    ucp_worker_progress(worker_);
  }
  ucp_request_free(request);
}

void UcxWorker::drop(int process) {
  std::lock_guard lock(mutex_);
  Peer& to = peer(process);
  to.lost = true;
  close(std::exchange(to.endpoint, nullptr), true);
}

void UcxWorker::expect_ends() {
  std::lock_guard lock(mutex_);
  ends_expected_ = true;
}

bool UcxWorker::shares_memory(int process) {
  const std::string lanes = transports(process);
  return std::ranges::any_of(std::array{"posix", "sysv", "xpmem"}, [&](const char* name) {
    return lanes.find(name) != std::string::npos;
  });
}

std::string UcxWorker::transports(int process) {
  std::lock_guard lock(mutex_);
  const Peer& to = peer(process);
  if (!to.endpoint || to.lost) return "none";
  char* text = nullptr;
  size_t bytes = 0;
  std::FILE* const file = open_memstream(&text, &bytes);
  if (file == nullptr) return "unknown";
  ucp_ep_print_info(to.endpoint, file);
  std::fclose(file);
  const std::string all(text, bytes);
  std::free(text);
  return lanes_of(all);
}

}  // namespace braid::fabric
