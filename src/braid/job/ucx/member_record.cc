#include "braid/job/ucx/member_record.h"

#include "braid/base/error.h"
#include "braid/job/packing.h"
#include "braid/job/ucx/greeting.h"

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
  const auto greeting = [&](size_t p) {
    const MemberRecord record = MemberRecord::read(records.at(p));
    return Greeting{
        .process = static_cast<int>(p), .host = record.host, .libraries = record.libraries};
  };
  for (size_t p = 1; p < records.size(); ++p) {
    const std::string refusal = difference(greeting(0), greeting(p));
    if (!refusal.empty()) throw Error(ErrorCode::kInvalidArgument, refusal);
  }
}

}  // namespace braid::job
