#pragma once

#include <string>
#include <vector>

namespace braid::job {

// A process' own facts, which all processes have after their meeting.
struct MemberRecord {
  std::string host;
  int pid = 0;
  std::string space;      // of process numbers: equal for processes that see each other's
  std::string address;    // of the UCX worker
  std::string libraries;  // versions, as job_libraries() has them

  std::string bytes() const;
  static MemberRecord read(const std::string& bytes);
};

// Fails with kInvalidArgument, naming two hosts and their versions, where a record's libraries are
// not those of process 0. `records` are bytes, by process. Comes before the first connection, since
// addresses of another UCX need not be readable.
void require_same_libraries(const std::vector<std::string>& records);

}  // namespace braid::job
