#include "braid/kernels/cuda/comm/device/across_machines.h"

#include <algorithm>

#include "braid/backend/cuda/device.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/comm/device/kernels.h"
#include "braid/kernels/cuda/comm/device/one_sided_kernels.h"

namespace braid::cuda {
namespace {

constexpr int kCtas = 32;
constexpr int kThreads = 256;

}  // namespace

// Messages of all exchanges, in sequence.
struct AcrossMachines::Slots {
  int64_t bytes = 0;                   // of a slot
  fabric::SymBuf<std::byte> send;      // [P, bytes]
  fabric::SymBuf<std::byte> received;  // [P, bytes]
};

struct AcrossMachines::Exchange {
  std::shared_ptr<Slots> slots;
  std::vector<std::unique_ptr<fabric::LinkProxy::Job>> jobs;
  std::vector<int64_t> carried;  // [P] bytes that this rank moves to each
  TransferParams transfers{};
  PushParams pushes{};  // within the machine
};

AcrossMachines::AcrossMachines(DeviceComm& comm) : comm_(comm) {}
AcrossMachines::~AcrossMachines() = default;

void AcrossMachines::prepare(const std::string& key, std::span<const int64_t> put, int64_t slot,
                             bool alike) {
  std::unique_ptr<Exchange>& exchange = exchanges_[key];
  if (exchange) return;
  fabric::DeviceEndpoint& endpoint = comm_.endpoint();
  const DeviceScope scope(endpoint.device());
  const int P = comm_.size(), me = comm_.index();
  if (!slots_ || slots_->bytes < slot) {
    slots_ = std::make_shared<Slots>();
    slots_->bytes = round_up(std::max<int64_t>(slot, 256), 256);
    slots_->send = endpoint.allocate<std::byte>(P * slots_->bytes, comm_.name() + "/send");
    slots_->received = endpoint.allocate<std::byte>(P * slots_->bytes, comm_.name() + "/received");
  }
  exchange = std::make_unique<Exchange>();
  Exchange& e = *exchange;
  e.slots = slots_;
  e.carried.assign(P, 0);
  for (int q = 0; q < P; ++q) {
    if (q == me || put[q] == 0) continue;
    e.carried[q] = put[q];
    const std::byte* const from = e.slots->send.data() + (alike ? 0 : q * e.slots->bytes);
    const std::byte* const mine = e.slots->received.data() + me * e.slots->bytes;
    if (endpoint.link(endpoint.rank(), comm_.group()[q]) != LinkClass::cluster) {
      // By a kernel: a copy's first time on a stream can hold up the host while another rank spins.
      const int i = e.pushes.n++;
      e.pushes.to[i] = comm_.at_peer(mine, q);
      e.pushes.from[i] = from;
      e.pushes.bytes[i] = put[q];
      continue;
    }
    auto job = endpoint.make_transfer(comm_.group()[q], true);
    // The proxy's copies address the peer's memory on its own GPU.
    job->set({{.dst = endpoint.reach(mine, comm_.group()[q]),
               .src = from,
               .block = {.row_bytes = put[q]}}});
    const int i = e.transfers.n++;
    e.transfers.peers[i] = q;
    e.transfers.asked[i] = job->asked();
    e.transfers.done[i] = job->done();
    e.jobs.push_back(std::move(job));
  }
}

void AcrossMachines::run(const std::string& key, AcrossParams p, AcrossKernel finish,
                         fabric::Tag tag, const LaunchContext& context) {
  const auto it = exchanges_.find(key);
  BRAID_CHECK(it != exchanges_.end(), "'{}' goes between machines and was not prepared", key);
  const Exchange& e = *it->second;
  p.rank = comm_.index();
  p.ranks = comm_.size();
  p.send = e.slots->send.data();
  p.received = e.slots->received.data();
  p.slot = e.slots->bytes;
  const LaunchContext plain{context.stream, false};
  const CommView view = comm_.view(tag);
  launch_kernel(plain, pack_kernel_of(), dim3(kCtas), dim3(kThreads), 0, p);
  launch_kernel(plain, barrier_kernel_of(), dim3(1), dim3(32), 0, view);
  if (e.transfers.n > 0) {
    launch_kernel(plain, ask_kernel_of(), dim3(1), dim3(32), 0, view, e.transfers);
  }
  if (e.pushes.n > 0) {
    const auto n = static_cast<unsigned>(e.pushes.n);
    launch_kernel(plain, push_kernel_of(), dim3(kCtas, n), dim3(kThreads), 0, e.pushes);
  }
  if (e.transfers.n > 0) {
    launch_kernel(plain, wait_kernel_of(), dim3(1), dim3(32), 0, view, e.transfers);
  }
  launch_kernel(plain, barrier_kernel_of(), dim3(1), dim3(32), 0, view);
  launch_kernel(plain, finish, dim3(kCtas), dim3(kThreads), 0, p);
  for (int q = 0; q < p.ranks; ++q) comm_.count(tag, q, {.put = e.carried[q]});
}

}  // namespace braid::cuda
