#include "braid/kernels/cuda/latent/latent_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {

LatentPlainScratch::LatentPlainScratch(const LatentPlainShape& s) {
  const auto take = [&](int64_t bytes) {
    const int64_t at = total;
    total += round_up(bytes, 256);
    return at;
  };
  take(s.keys * (s.latent + s.rope) * 2);
  keys = take(s.keys * s.heads * (s.nope + s.rope + s.value) * 2);
  queries = take(s.tokens * s.heads * (s.nope + s.rope) * 2);
  begin = take(2 * 4);
  spans = take(4 * 4);
}

bool takes_latent_plain(const LatentPlainShape& s) {
  const int64_t D = s.nope + s.rope;
  const bool known = (D == 192 && s.value == 128) ||
                     (D == s.value && (D == 64 || D == 96 || D == 128 || D == 256));
  return known && s.nope % 8 == 0 && s.rope % 8 == 0 && s.latent % 8 == 0 && s.sequences == 1 &&
         s.tokens >= kFewestPlainRows && LatentPlainScratch(s).total <= kMostPlainBytes;
}

int64_t latent_blocks(const LatentShape& s, int rows) {
  // The last block of each sequence may be short.
  return std::min(s.tokens, s.sequences) + s.tokens * s.heads / rows;
}

int64_t latent_workspace_bytes(const LatentShape& s, const LatentConfig& c) {
  if (c.shares == 1) return 0;
  return c.shares * s.tokens * s.heads * (s.latent + 2) * static_cast<int64_t>(sizeof(float));
}

LatentConfig choose_latent(const LatentShape& s, const LatentDevice& device) {
  const auto refuse = [](std::string_view what, int64_t value, int64_t most) {
    if (0 < value && value <= most && value % 8 == 0) return;
    fail(ErrorCode::kUnsupported, "latent_attention: {} is {}, a multiple of 8 up to {} is allowed",
         what, value, most);
  };
  refuse("the latents' width", s.latent, kMaxLatent);
  refuse("the keys' width", s.latent + s.rope, kMaxLatentWidth);
  LatentConfig c{.rows = 64};
  // Few tokens in each sequence: blocks with about a token's rows.
  const int64_t each = ceil_div(s.tokens, std::max<int64_t>(1, s.sequences)) * s.heads;
  while (c.rows > 16 && each <= c.rows / 2) c.rows /= 2;
  const int64_t bytes =
      kLatentStaticBytes +
      latent_smem(c.rows, static_cast<int>(s.latent), static_cast<int>(s.rope)).total;
  if (bytes > device.shared_bytes) {
    fail(ErrorCode::kUnsupported,
         "latent_attention: keys of {} take {} bytes of shared memory, this GPU has {}",
         s.latent + s.rope, bytes, device.shared_bytes);
  }
  // Each sequence has a separate block.
  const int64_t blocks = std::max(s.tokens * s.heads / c.rows, std::min(s.tokens, s.sequences));
  c.shares = static_cast<int>(
      std::clamp<int64_t>(device.num_sms / std::max<int64_t>(1, blocks), 1, kMaxLatentShares));
  return c;
}

std::string to_string(const LatentConfig& c) {
  return fmt::format("latent {} rows, keys / {}", c.rows, c.shares);
}

}  // namespace braid::cuda
