extern "C" int braid_strategy_abi() {
  return 999;
}
extern "C" void* braid_make_strategy() {
  return nullptr;
}
