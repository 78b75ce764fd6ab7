// The CPU sampler itself is what the kernels are held to. It stands alone: its library is far more
// than these tests need.
#include "braid/engine/sampling.cc"
