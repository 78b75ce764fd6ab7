#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "braid/job/job.h"
#include "braid/job/ucx/control.h"
#include "braid/job/ucx/meet_at_host.h"
#include "braid/job/ucx/monitor.h"

namespace braid::job {

// A job over UCX's active messages.
class UcxJob final : public Job {
 public:
  explicit UcxJob(const JobConfig& config);
  ~UcxJob() override;

  int process() const override { return launch_.process; }
  const std::vector<Member>& members() const override { return members_; }
  std::vector<std::string> gather(std::string_view what, std::string_view value) override;
  std::string broadcast(std::string_view what, std::string_view value) override;
  void finish() override;
  void send_record(std::string_view record) override;
  std::string next_record() override;
  void fail(std::exception_ptr error) override;
  void rethrow_error() const override { error_.rethrow(); }
  std::string last_words(const std::string& own) const override;
  bool failed_here() const override;
  void said() override { said_ = true; }
  void phase(Phase phase) override;
  std::unique_ptr<fabric::Fabric> make_fabric(const JobFabric& config) override;
  std::string transport(int process) override;

 private:
  // The first failing process, its activity, and the error.
  struct Failure {
    int process = 0;
    int rank = 0;
    Phase phase = Phase::start;
    ErrorCode code = ErrorCode::kAborted;
    std::string text;
  };
  int ranks_per_process() const override { return ranks_per_process_; }
  void meet();
  void connect(int process, const std::string& record);
  void tell_who_came(const Error& error);
  void set_fabric(std::function<void()> wake);
  void noted(int from, Note note, std::string_view bytes);
  void fail(int rank, std::exception_ptr error);
  void end_by(const Failure& failure);
  void lost(int process, const std::string& why);
  Failure failure_of(int process, const std::string& why) const;
  [[noreturn]] void end_process();

  const JobConfig config_;
  Launch launch_;
  std::vector<Member> members_;  // [processes]
  std::vector<int> pids_here_;   // [processes], 0 beyond this host
  std::atomic<int> ranks_per_process_{1};
  std::atomic<Phase> phase_{Phase::start};
  std::deque<std::atomic<Phase>> phases_;  // [processes], as far as they are known

  fabric::JobError error_;
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  std::function<void()> wake_fabric_;
  std::atomic<bool> said_{false};

  Hellos hellos_;
  std::optional<fabric::UcxWorker> worker_;
  std::optional<Control> control_;
  std::atomic<Monitor*> watching_{nullptr};
  std::optional<Monitor> monitor_;

  int64_t collectives_ = 0;
  uint32_t fabrics_ = 0;
  int64_t sent_records_ = 0, asked_records_ = 0;
  std::deque<std::atomic<int64_t>> done_records_;  // [processes]
};

}  // namespace braid::job
