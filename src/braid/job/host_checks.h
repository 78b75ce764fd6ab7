#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace braid::job {

// Names of this host's network interfaces and RDMA cards, sorted.
std::vector<std::string> net_devices();

// Fails with kResource if `wanted`, the value of UCX_NET_DEVICES ("eth0,mlx5_0:1", "all" or empty),
// names a device that `present` lacks: the line names both.
void require_net_devices(std::string_view wanted, const std::vector<std::string>& present);

// " (UCX_NET_DEVICES is 'lo'; this host has eth0, lo)" for a process that finds no way to another:
// `wanted` is the variable's value, and empty or null gives an empty text.
std::string chosen_net_devices(const char* wanted, const std::vector<std::string>& present);

// " (/dev/shm has 0.5 MB free: docker run --shm-size=1g, or UCX_TLS=tcp,self)" where shared memory
// is too small for UCX; otherwise empty.
std::string small_shared_memory(const std::filesystem::path& folder = "/dev/shm");

// What this process may lock in memory, in bytes; -1: anything.
int64_t lockable_bytes();
// "0.1 MB may be locked, too little for 2 RDMA cards: ulimit -l unlimited" where that is so;
// otherwise empty.
std::string small_memlock(int64_t lockable, int64_t rdma_cards);

}  // namespace braid::job
