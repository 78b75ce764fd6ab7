// A library of NVSHMEM's name with another version, for the refusal.
extern "C" void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) {
  *major = 4;
  *minor = 1;
  *patch = 2;
}
