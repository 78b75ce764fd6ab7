#include "braid/job/ucx/member_record.h"

#include "braid/base/error.h"
#include "braid/job/packing.h"

namespace braid::job {

std::string MemberRecord::bytes() const {
  Packer packer;
  packer.add(host).add(int64_t{pid}).add(space).add(address).add(libraries);
  return packer.bytes();
}

MemberRecord MemberRecord::read(const std::string& bytes) {
  Unpacker fields(bytes);
  MemberRecord record{.host = fields.text()};
  record.pid = static_cast<int>(fields.number());
  record.space = fields.text();
  record.address = fields.text();
  record.libraries = fields.text();
  return record;
}

void require_same_libraries(const std::vector<std::string>& records) {
  const MemberRecord first = MemberRecord::read(records.at(0));
  for (size_t p = 1; p < records.size(); ++p) {
    const MemberRecord other = MemberRecord::read(records[p]);
    if (other.libraries == first.libraries) continue;
    fail(ErrorCode::kInvalidArgument,
         "libraries differ: rank 0 on {} has '{}', rank {} on {} has '{}'", first.host,
         first.libraries, p, other.host, other.libraries);
  }
}

}  // namespace braid::job
