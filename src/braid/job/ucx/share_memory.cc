#include "braid/job/ucx/share_memory.h"

#include "braid/job/packing.h"

namespace braid::job {

std::vector<std::shared_ptr<fabric::HostMemory>> share_memory(Job& job, fabric::UcxWorker& worker,
                                                              int ranks_per_process) {
  std::vector<std::shared_ptr<fabric::HostMemory>> memories;
  const auto own = fabric::HostMemory::make(ranks_per_process);
  Packer all;
  for (const std::string& name : job.gather("memories", own->name())) all.add(name);
  Unpacker names(job.broadcast("memories", all.bytes()));
  for (int p = 0; p < job.processes(); ++p) {
    const std::string name = names.text();
    memories.push_back(p == job.process()        ? own
                       : worker.shares_memory(p) ? fabric::HostMemory::open(name, ranks_per_process)
                                                 : nullptr);
  }
  return memories;
}

}  // namespace braid::job
