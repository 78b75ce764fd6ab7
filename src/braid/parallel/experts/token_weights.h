#pragma once

#include "braid/program/program.h"

namespace braid {

// Bytes of the weights that a token by itself reads in a logical Program: k of E experts, and a row
// of the embedding unless the head shares the table.
int64_t token_weight_bytes(const Program& program);

}  // namespace braid
