#pragma once

#include <string>
#include <vector>

namespace braid::job {

// A process' facts for all processes, exchanged at their meeting.
struct MemberRecord {
  std::string host;
  int pid = 0;
  std::string space;      // of process numbers; equal inside a host or container
  std::string address;    // of the UCX worker
  std::string libraries;  // versions, as job_libraries() has them

  std::string bytes() const;
  static MemberRecord read(const std::string& bytes);
};

// Fails with kInvalidArgument, naming two hosts and their versions, if a record's libraries differ
// from process 0's. `records` are bytes, by process. Called before the first connection: addresses
// of another UCX need not be readable.
void require_same_libraries(const std::vector<std::string>& records);

}  // namespace braid::job
