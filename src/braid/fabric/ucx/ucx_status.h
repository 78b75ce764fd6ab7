#pragma once

#include <ucs/type/status.h>

#include "braid/base/error.h"

namespace braid::fabric {

// Fails with kResource, naming UCX's failed action and the reason.
inline void require_ucs(ucs_status_t status, std::string_view what) {
  if (status == UCS_OK) return;
  fail(ErrorCode::kResource, "UCX: {}: {}", what, ucs_status_string(status));
}

}  // namespace braid::fabric
