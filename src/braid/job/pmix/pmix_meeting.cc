#include <pmix.h>

#include <cstdlib>

#include "braid/base/error.h"
#include "braid/job/meeting.h"

namespace braid::job {
namespace {

constexpr const char* kKey = "braid.member";

void require_pmix(pmix_status_t status, std::string_view what) {
  if (status == PMIX_SUCCESS) return;
  const bool late = status == PMIX_ERR_TIMEOUT;
  fail(late ? ErrorCode::kDeadline : ErrorCode::kResource, "PMIx: {}: {}", what,
       PMIx_Error_string(status));
}

// A session with the server, ended also where something fails.
struct Session {
  pmix_proc_t self{};
  Session() { require_pmix(PMIx_Init(&self, nullptr, 0), "no server of the launcher answers"); }
  ~Session() { PMIx_Finalize(nullptr, 0); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  pmix_value_t* get(pmix_rank_t rank, const char* key) const {
    pmix_proc_t proc{};
    PMIX_LOAD_PROCID(&proc, self.nspace, rank);
    pmix_value_t* value = nullptr;
    require_pmix(PMIx_Get(&proc, key, nullptr, 0, &value), fmt::format("reading {}", key));
    return value;
  }
};

}  // namespace

std::vector<std::string> meet_by_pmix(Launch& launch, const std::string& mine,
                                      std::chrono::milliseconds deadline) {
  const Session session;
  const char* const name = std::getenv("PMIX_NAMESPACE");
  if (name != nullptr && std::string_view(name) != session.self.nspace) {
    fail(ErrorCode::kInvalidArgument,
         "the launcher's job is '{}', PMIx says '{}': the PMIx library does not reach the "
         "launcher's server, and each process would believe to be alone",
         name, session.self.nspace);
  }
  pmix_value_t* size = session.get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
  const auto processes = static_cast<int>(size->data.uint32);
  PMIX_VALUE_RELEASE(size);
  if (launch.processes != 0 && launch.processes != processes) {
    fail(ErrorCode::kInvalidArgument,
         "the launcher's variables say {} processes, its PMIx server {}: the launcher and the "
         "PMIx library do not match",
         launch.processes, processes);
  }
  launch.processes = processes;
  launch.process = static_cast<int>(session.self.rank);

  pmix_value_t value{};
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo = {const_cast<char*>(mine.data()), mine.size()};
  require_pmix(PMIx_Put(PMIX_GLOBAL, kKey, &value), "handing out an address");
  require_pmix(PMIx_Commit(), "handing out an address");
  pmix_info_t info[2];
  PMIX_INFO_CONSTRUCT(&info[0]);
  PMIX_INFO_CONSTRUCT(&info[1]);
  bool collect = true;
  auto seconds = static_cast<int>((deadline.count() + 999) / 1000);
  PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
  PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
  require_pmix(PMIx_Fence(nullptr, 0, info, 2),
               fmt::format("not all {} processes came within {} s", processes, seconds));
  std::vector<std::string> all;
  for (int p = 0; p < processes; ++p) {
    pmix_value_t* theirs = session.get(static_cast<pmix_rank_t>(p), kKey);
    all.emplace_back(theirs->data.bo.bytes, theirs->data.bo.size);
    PMIX_VALUE_RELEASE(theirs);
  }
  return all;
}

std::string pmix_version() {
  const std::string text = PMIx_Get_version();  // "OpenPMIx 4.2.2, ..."
  const size_t begin = text.find_first_of("0123456789");
  return begin == std::string::npos ? text
                                    : text.substr(begin, text.find_first_of(" ,", begin) - begin);
}

bool has_pmix() {
  return true;
}

}  // namespace braid::job
