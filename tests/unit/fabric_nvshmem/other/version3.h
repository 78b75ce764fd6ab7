// NVSHMEM's functions as far as a start needs them, in a library of version 3 that never starts.
#pragma once

#include <cstddef>

#define BRAID_NVSHMEM_3(MINOR)                                                \
  extern "C" {                                                                \
  void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) { \
    *major = 3;                                                               \
    *minor = MINOR;                                                           \
    *patch = 5;                                                               \
  }                                                                           \
  int nvshmemx_get_uniqueid(void*) {                                          \
    return 7;                                                                 \
  }                                                                           \
  int nvshmemx_hostlib_init_attr(unsigned, void*) {                           \
    return 7;                                                                 \
  }                                                                           \
  void* nvshmem_malloc(size_t) {                                              \
    return nullptr;                                                           \
  }                                                                           \
  void* nvshmem_ptr(const void*, int) {                                       \
    return nullptr;                                                           \
  }                                                                           \
  }
