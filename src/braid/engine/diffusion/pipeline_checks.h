#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/engine/diffusion/pipeline_memory.h"
#include "braid/engine/diffusion/pipeline_parts.h"
#include "braid/engine/diffusion/text_encoders.h"
#include "braid/engine/diffusion/tiles.h"

// Shared by pipelines: checks on requests, and on components that have to agree.
namespace braid {

// Fails with kInvalidArgument outside least .. most.
void require_range(std::string_view what, int64_t value, int64_t least, int64_t most);

// A side in pixels: a multiple of `unit`; errors name the nearest legal sides.
void require_side(std::string_view what, int64_t pixels, int64_t unit);

bool all_finite(std::span<const float> values);
// Fails with kMalformed on a prediction beyond finite numbers, naming the step and what
// first_block() says.
void require_finite(std::span<const float> prediction, int64_t step, int64_t steps,
                    const std::function<std::string()>& first_block);

// The first of blocks 1 .. n with finite_after(block) false; 0 if finite_after(0) is false. A block
// hands on numbers that are not finite, so that halving finds the first.
int64_t first_block_beyond(int64_t n, const std::function<bool(int64_t block)>& finite_after);

// Bytes that ranks 0 .. ranks - 1 send each other in a run, by the transfers of the plan's ops.
int64_t sent_bytes(const BoundNetwork& network, int ranks);

// Whether previews are made: `together` says that decoder and transformer fit the memory. Adds a
// remark where wanted previews are not made.
bool can_preview(int64_t every, bool together, std::vector<std::string>& remarks);
// Whether step `step` (1 .. steps) has a preview; the last has none.
bool preview_due(int64_t every, int64_t step, int64_t steps);

// Whether a decoder of h x w latents works in tiles: as `memory` says, without it as `wanted`. Then
// adds a remark.
bool decodes_in_tiles(const TileGrid& grid, int64_t scale, int64_t h, int64_t w,
                      const std::optional<PipelineMemory>& memory, bool wanted,
                      std::vector<std::string>& remarks);

// Opens a folder. Fails with kUnsupported on a pipeline of another class than `wanted`, naming the
// command for the class.
DiffusersFolder open_pipeline(const std::string& path, std::string_view wanted);

// Fails with kUnsupported on a transformer whose configuration names another class than `wanted`,
// naming the first tensors whose names begin with none of the class' `prefixes`.
void require_transformer(const PipelineParts& parts, std::string_view wanted,
                         std::initializer_list<std::string_view> prefixes);

// A remark about a text cut after `tokens` tokens: the begin of the `rest`.
std::string cut_remark(std::string_view what, int64_t tokens, std::string_view rest);

// Fails with kUnsupported if component `what` makes `has` values and the transformer's field `of`
// is not `has`.
void require_agreement(std::string_view what, int64_t has, std::string_view of, int64_t wants);

// Random numbers in the place of an encoded prompt.
EncodedPrompt random_prompt(uint64_t seed, int64_t values);

// Milliseconds since the last call.
class Lap {
 public:
  double ms() {
    const auto now = Clock::now();
    const std::chrono::duration<double, std::milli> passed = now - std::exchange(begin_, now);
    return passed.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace braid
