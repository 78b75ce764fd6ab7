#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "braid/fabric/ucx/ucx_message.h"

namespace braid::fabric {

// This process' part in UCX: a worker, connections to the job's other processes, and a thread that
// makes progress on every arrival, since a computing process would answer nothing. Messages from a
// process to another arrive in the order of send calls. All calls may come from any thread,
// including UcxReceiver calls that do not wait.
class UcxWorker {
 public:
  static constexpr int kMostHeader = 128;  // bytes
  // Told once for each process whose connection broke, with UCX's reason, under the lock.
  using OnLost = std::function<void(int process, const std::string& why)>;

  // Fails with kResource where UCX finds no transport. Sets UCX's log level to fatal unless
  // UCX_LOG_LEVEL is set: Braid itself reports failures.
  explicit UcxWorker(OnLost on_lost);
  ~UcxWorker();  // closes connections, each for a second at most
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // Address for connections to this worker.
  std::string address();
  void connect(int process, const std::string& address);
  // Messages numbered `id` go to the receiver from now on; null: they are dropped.
  void receive(unsigned id, UcxReceiver* receiver);

  // Listens at the host, which is this machine, for processes without a worker's address; returns
  // the port. Fails with kResource and the host's addresses.
  int listen(const std::string& host);
  // Sends the first message over a separate connection to a listener. False without a listener yet;
  // may be tried again. Fails with kNotFound if the host has no address.
  bool knock(const std::string& host, int port, unsigned id, std::span<const std::byte> header,
             std::span<const std::byte> data, std::chrono::nanoseconds deadline);

  // Sends header and data to a process; data stays untouched until `send->complete`. `send` has
  // `done` set, and packed or keep as needed.
  void send(int process, unsigned id, std::span<const std::byte> header,
            std::span<const std::byte> data, const std::shared_ptr<UcxSend>& send);
  // The same with a copy of the data, for small ones.
  void send_copy(int process, unsigned id, std::span<const std::byte> header,
                 std::span<const std::byte> data);
  // Whether so many bytes go to the process by one system call. Under the lock.
  bool sends_at_once(int process, int64_t bytes);

  // Makes progress unless another thread does. True where something happened.
  bool progress();
  // Ends all connections to a process by force: afterwards UCX leaves the sends' memory alone.
  void drop(int process);
  // Connections that break from now on are no news.
  void expect_ends();
  // Held while messages are handed out.
  std::recursive_mutex& mutex() { return mutex_; }
  // UCX's choice for a connection, in one line.
  std::string transports(int process);
  // Whether UCX's choice is memory that the two processes share.
  bool shares_memory(int process);

 private:
  struct Peer {
    UcxWorker* worker = nullptr;
    int process = -1;
    ucp_ep_h endpoint = nullptr;
    bool lost = false;
    bool tcp = false;  // carries the bytes
  };
  struct Route {
    UcxWorker* worker = nullptr;
    UcxReceiver* receiver = nullptr;
  };
  static void broken(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t arrived(void* route, const void* header, size_t header_bytes, void* data,
                              size_t bytes, const ucp_am_recv_param_t* param);
  static void sent(void* request, ucs_status_t status, void* send);
  static void knocked(ucp_conn_request_h request, void* worker);
  Peer& peer(int process);
  ucp_ep_h create(ucp_ep_params_t params, Peer& peer, std::string_view what);
  void post(const Peer& to, unsigned id, std::span<const std::byte> data,
            const std::shared_ptr<UcxSend>& send);
  void close(ucp_ep_h endpoint, bool force);
  void run();

  static constexpr unsigned kIds = 4;
  std::recursive_mutex mutex_;
  OnLost on_lost_;
  bool ends_expected_ = false;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int event_ = -1;                               // becomes readable when something arrives
  std::deque<Peer> peers_;                       // [processes], as far as they are connected
  std::vector<std::unique_ptr<Peer>> visitors_;  // who knocked
  std::vector<Route> routes_;                    // [kIds]
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace braid::fabric
