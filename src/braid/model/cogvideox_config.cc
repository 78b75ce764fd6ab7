// Configuration of CogVideoX's transformer, and positions of a video's tokens.
#include <cmath>

#include "braid/model/cogvideox.h"
#include "braid/model/component_config.h"
#include "braid/ops/rope_table.h"

namespace braid {
namespace {

constexpr std::string_view kComponent = "transformer";

// Fails on a field with another value than the only supported one.
void require_flag(const JsonObject& config, const char* key, bool otherwise, bool supported) {
  if (config.get_or<bool>(key, otherwise) == supported) return;
  fail(ErrorCode::kUnsupported, "{}: {} is {}, {} is supported", kComponent, key, !supported,
       supported);
}

void require_number(const JsonObject& config, const char* key, int64_t otherwise,
                    int64_t supported) {
  const int64_t value = config.get_or<int64_t>(key, otherwise);
  if (value == supported) return;
  fail(ErrorCode::kUnsupported, "{}: {} is {}, {} is supported", kComponent, key, value, supported);
}

// n numbers from `begin` to `end`, rounded to f32 as torch.linspace rounds.
std::vector<double> linspace(double begin, double end, int64_t n) {
  const auto first = static_cast<float>(begin), last = static_cast<float>(end);
  const float step = n > 1 ? (last - first) / static_cast<float>(n - 1) : 0;
  std::vector<double> x;
  for (int64_t i = 0; i < n; ++i) {
    x.push_back(i < (n + 1) / 2 ? first + (step * static_cast<float>(i))
                                : last - (step * static_cast<float>(n - 1 - i)));
  }
  return x;
}

// Positions along rows and columns: the part of the training grid covered by a picture with other
// sides, when fitted inside.
std::array<std::vector<double>, 2> fitted_positions(const CogVideoXConfig& c, const VideoGrid& g) {
  const auto H = static_cast<double>(c.height / 2), W = static_cast<double>(c.width / 2);
  const auto h = static_cast<double>(g.rows), w = static_cast<double>(g.columns);
  const bool tall = h / w > H / W;
  const double rows = tall ? H : std::nearbyint(W / w * h);
  const double columns = tall ? std::nearbyint(H / h * w) : W;
  const double top = std::nearbyint((H - rows) / 2), left = std::nearbyint((W - columns) / 2);
  return {linspace(top, (top + rows) * (h - 1) / h, g.rows),
          linspace(left, (left + columns) * (w - 1) / w, g.columns)};
}

std::vector<double> counted(int64_t n, double scale = 1) {
  std::vector<double> x;
  for (int64_t i = 0; i < n; ++i) {
    x.push_back(static_cast<float>(i) / static_cast<float>(scale));
  }
  return x;
}

// Calls fn(frame, row, column) for each token.
template <class F>
void for_tokens(const VideoGrid& grid, F&& fn) {
  for (int64_t t = 0; t < grid.frames; ++t) {
    for (int64_t y = 0; y < grid.rows; ++y) {
      for (int64_t x = 0; x < grid.columns; ++x) fn(t, y, x);
    }
  }
}

std::vector<float> rotary_table(const CogVideoXConfig& c, const VideoGrid& grid) {
  const auto [rows, columns] =
      c.slice ? std::array{counted(grid.rows), counted(grid.columns)} : fitted_positions(c, grid);
  const int64_t time = c.head_dim / 4, side = c.head_dim / 8 * 3;
  std::vector<ops::RopeAxis> axes = {{time, {}}, {side, {}}, {side, {}}};
  for_tokens(grid, [&](int64_t t, int64_t y, int64_t x) {
    axes[0].positions.push_back(static_cast<double>(t));
    axes[1].positions.push_back(rows[y]);
    axes[2].positions.push_back(columns[x]);
  });
  return ops::make_rope_table(axes, 10000);
}

// Sines, then cosines, of a position: `dim` values.
void add_sinusoid(std::vector<float>& to, double position, int64_t dim) {
  const auto angle = [&](int64_t i) {
    return position *
           (1 / std::pow(10000.0, static_cast<double>(i) / (static_cast<double>(dim) / 2)));
  };
  for (int64_t i = 0; i < dim / 2; ++i) to.push_back(static_cast<float>(std::sin(angle(i))));
  for (int64_t i = 0; i < dim / 2; ++i) to.push_back(static_cast<float>(std::cos(angle(i))));
}

// Time takes a quarter of the columns, then width and height three eighths each.
std::vector<float> added_positions(const CogVideoXConfig& c, const VideoGrid& grid) {
  const auto sinusoids = [](const std::vector<double>& positions, int64_t dim) {
    std::vector<std::vector<float>> rows(positions.size());
    for (size_t i = 0; i < rows.size(); ++i) add_sinusoid(rows[i], positions[i], dim);
    return rows;
  };
  const auto time = sinusoids(counted(grid.frames, c.temporal_scale), c.C() / 4);
  const auto row = sinusoids(counted(grid.rows, c.spatial_scale), c.C() / 8 * 3);
  const auto column = sinusoids(counted(grid.columns, c.spatial_scale), c.C() / 8 * 3);
  std::vector<float> out;
  out.reserve(grid.tokens() * c.C());
  for_tokens(grid, [&](int64_t t, int64_t y, int64_t x) {
    for (const auto* part : {&time[t], &column[x], &row[y]}) {
      out.insert(out.end(), part->begin(), part->end());
    }
  });
  return out;
}

}  // namespace

CogVideoXConfig read_cogvideox_config(const JsonObject& config) {
  // The last two are about training and learned positions.
  require_known_fields(config, kComponent, ConfigWriter::diffusers,
                       {"in_channels",
                        "num_layers",
                        "num_attention_heads",
                        "attention_head_dim",
                        "text_embed_dim",
                        "time_embed_dim",
                        "max_text_seq_length",
                        "patch_size_t",
                        "use_rotary_positional_embeddings",
                        "attention_bias",
                        "patch_bias",
                        "norm_eps",
                        "sample_height",
                        "sample_width",
                        "sample_frames",
                        "spatial_interpolation_scale",
                        "temporal_interpolation_scale",
                        "out_channels",
                        "patch_size",
                        "freq_shift",
                        "use_learned_positional_embeddings",
                        "norm_elementwise_affine",
                        "flip_sin_to_cos",
                        "activation_fn",
                        "timestep_activation_fn",
                        "ofs_embed_dim",
                        "dropout",
                        "temporal_compression_ratio"});
  const CogVideoXConfig otherwise;
  const auto count = [&](const char* key, int64_t value) {
    return read_count(config, kComponent, key, value);
  };
  CogVideoXConfig c{
      .channels = count("in_channels", otherwise.channels),
      .blocks = count("num_layers", otherwise.blocks),
      .heads = count("num_attention_heads", otherwise.heads),
      .head_dim = count("attention_head_dim", otherwise.head_dim),
      .text_dim = count("text_embed_dim", otherwise.text_dim),
      .time_dim = count("time_embed_dim", otherwise.time_dim),
      .text_tokens = count("max_text_seq_length", otherwise.text_tokens),
      .patch_frames = count("patch_size_t", 1),
      .rotary = config.get_or<bool>("use_rotary_positional_embeddings", false),
      .slice = config.contains("patch_size_t"),
      .qkv_bias = config.get_or<bool>("attention_bias", true),
      .patch_bias = config.contains("patch_size_t") || config.get_or<bool>("patch_bias", true),
      .eps = read_positive(config, kComponent, "norm_eps", otherwise.eps),
      .height = count("sample_height", otherwise.height),
      .width = count("sample_width", otherwise.width),
      .frames = count("sample_frames", otherwise.frames),
      .spatial_scale = read_positive(config, kComponent, "spatial_interpolation_scale", 1.875f),
      .temporal_scale = read_positive(config, kComponent, "temporal_interpolation_scale", 1)};
  require_number(config, "out_channels", c.channels, c.channels);
  require_number(config, "patch_size", 2, 2);
  require_number(config, "freq_shift", 0, 0);
  require_flag(config, "use_learned_positional_embeddings", false, false);
  require_flag(config, "norm_elementwise_affine", true, true);
  require_flag(config, "flip_sin_to_cos", true, true);
  require_text(config, kComponent, "activation_fn", {"gelu-approximate"});
  require_text(config, kComponent, "timestep_activation_fn", {"silu"});
  if (config.contains("ofs_embed_dim")) {
    fail(ErrorCode::kUnsupported,
         "{}: ofs_embed_dim is there: models that take a picture as input are not supported",
         kComponent);
  }
  if (c.slice && !c.rotary) {
    fail(ErrorCode::kUnsupported, "{}: patch_size_t is {} without use_rotary_positional_embeddings",
         kComponent, c.patch_frames);
  }
  if (c.rotary ? c.head_dim % 16 != 0 : c.C() % 16 != 0) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}, a multiple of 16 is supported", kComponent,
         c.rotary ? "attention_head_dim" : "the width", c.rotary ? c.head_dim : c.C());
  }
  return c;
}

std::vector<float> cogvideox_positions(const CogVideoXConfig& config, const VideoGrid& grid) {
  return config.rotary ? rotary_table(config, grid) : added_positions(config, grid);
}

}  // namespace braid
