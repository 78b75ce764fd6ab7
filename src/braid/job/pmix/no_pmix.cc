#include "braid/base/error.h"
#include "braid/job/job.h"
#include "braid/job/meeting.h"

namespace braid::job {

std::vector<std::string> meet_by_pmix(Launch& /*launch*/, const std::string& /*mine*/,
                                      std::chrono::milliseconds /*deadline*/) {
  fail(ErrorCode::kUnsupported, "this build has no PMIx: build it with Debian's libpmix-dev");
}

std::string pmix_version() {
  return "";
}

bool has_pmix() {
  return false;
}

}  // namespace braid::job
