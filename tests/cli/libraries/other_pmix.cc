// Preloaded: PMIx of another version, as far as a program asks.
extern "C" const char* PMIx_Get_version() {
  return "OpenPMIx 9.8.7, repo rev: none";
}
