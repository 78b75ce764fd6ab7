// Preloaded: UCX of another version, as far as a program asks.
extern "C" void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1;
  *minor = 99;
  *release = 7;
}
