// A library of NVSHMEM's name without NVSHMEM's functions, for the refusal.
extern "C" void braid_nothing() {}
