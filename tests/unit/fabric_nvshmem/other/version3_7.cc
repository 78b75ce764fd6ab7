#include "version3.h"

BRAID_NVSHMEM_3(7)
