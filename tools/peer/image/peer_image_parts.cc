// Flux (1 + 2 blocks at full width), T5 XXL (2 layers) and Flux' decoder of stable-diffusion.cpp on
// random weights: the peer of bench/image_components_bench.cc. Its source is in the PyPI package
// stable-diffusion-cpp-python (0.4.7), under vendor/:
//   cmake -S tools/peer/image -B build/peer-image -G Ninja -DCMAKE_BUILD_TYPE=Release \
//       -DPEER_SOURCE=SOURCE && ninja -C build/peer-image peer_image_parts
//   peer_image_parts THREADS ROUNDS flux:q8_0:512 flux:f16:512 t5:f16:512 decode:f16:512
// `fast` behind a case, flux:q8_0:512:fast: flash attention, convolutions without im2col.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "flux.hpp"
#include "t5.hpp"
//
#include "auto_encoder_kl.hpp"

// Vocabularies, which nothing here asks for.
std::string load_clip_merges() {
  return {};
}
std::string load_qwen2_merges() {
  return {};
}
std::string load_mistral_merges() {
  return {};
}
std::string load_mistral_vocab_json() {
  return {};
}
std::string load_t5_tokenizer_json() {
  return {};
}
std::string load_umt5_tokenizer_json() {
  return {};
}

namespace {

constexpr int64_t kText = 512;

std::vector<float> uniform(size_t n, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-spread, spread);
  std::vector<float> values(n);
  for (float& x : values) x = draw(random);
  return values;
}

sd::Tensor<float> input(std::vector<int64_t> shape, unsigned seed) {
  int64_t n = 1;
  for (int64_t side : shape) n *= side;
  return {std::move(shape), uniform(static_cast<size_t>(n), 1.7f, seed)};
}

// Random numbers from a table, since only speed counts; those of norms are near 1.
void fill(const std::map<std::string, ggml_tensor*>& tensors) {
  const std::vector<float> table = uniform(1 << 20, 1, 1);
  for (const auto& [name, tensor] : tensors) {
    const int64_t rows = ggml_nrows(tensor), n = tensor->ne[0];
    const bool norm = ggml_n_dims(tensor) == 1 && name.find("bias") == std::string::npos;
    const auto fan_in =
        static_cast<float>(ggml_nelements(tensor) / tensor->ne[ggml_n_dims(tensor) - 1]);
    const float spread = norm ? 0.1f : 1 / std::sqrt(std::max(fan_in, 1.0f));
    std::vector<float> row(static_cast<size_t>(n));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const float x = table[static_cast<size_t>((r * 7919 + i) & ((1 << 20) - 1))];
        row[static_cast<size_t>(i)] = spread * x + (norm ? 1.0f : 0.0f);
      }
      auto* to = static_cast<char*>(tensor->data) +
                 r * static_cast<int64_t>(ggml_row_size(tensor->type, n));
      if (tensor->type == GGML_TYPE_F32) {
        std::copy(row.begin(), row.end(), reinterpret_cast<float*>(to));
      } else {
        ggml_quantize_chunk(tensor->type, row.data(), to, 0, 1, n, nullptr);
      }
    }
  }
}

// The types of a model's tensors, by a first instance that has none: f32 but for matrices.
String2TensorStorage types_of(const std::map<std::string, ggml_tensor*>& tensors, ggml_type type,
                              String2TensorStorage types) {
  for (const auto& [name, tensor] : tensors) {
    const bool matrix = ggml_n_dims(tensor) >= 2;
    types[name] =
        TensorStorage(name, matrix ? type : GGML_TYPE_F32, tensor->ne, ggml_n_dims(tensor), 0);
  }
  return types;
}

template <class Runner>
std::map<std::string, ggml_tensor*> tensors_of(Runner& runner) {
  std::map<std::string, ggml_tensor*> tensors;
  runner.get_param_tensors(tensors, "");
  return tensors;
}

struct T5Layers : GGMLRunner {
  T5 model;
  std::vector<int> buckets;

  T5Layers(ggml_backend_t backend, const String2TensorStorage& types) : GGMLRunner(backend, false) {
    T5Params params;
    params.num_layers = 2;
    model = T5(params);
    model.init(params_ctx, types, "");
    std::vector<int> distance;
    for (int q = 0; q < kText; ++q) {
      for (int k = 0; k < kText; ++k) distance.push_back(k - q);
    }
    buckets = T5Runner::_relative_position_bucket(distance);
  }
  std::string get_desc() override { return "t5"; }
  void get_param_tensors(std::map<std::string, ggml_tensor*>& tensors, const std::string& prefix) {
    model.get_param_tensors(tensors, prefix);
  }
  sd::Tensor<float> run(int threads, const sd::Tensor<int32_t>& ids) {
    const auto graph = [&] {
      ggml_cgraph* gf = ggml_new_graph(compute_ctx);
      ggml_tensor* in = make_input(ids);
      ggml_tensor* bucket = ggml_new_tensor_2d(compute_ctx, GGML_TYPE_I32, kText, kText);
      set_backend_tensor_data(bucket, buckets.data());
      auto context = get_context();
      ggml_build_forward_expand(gf, model.forward(&context, in, nullptr, nullptr, bucket));
      return gf;
    };
    return take_or_empty(compute<float>(graph, threads, false));
  }
};

void time(const std::string& name, int rounds, const std::function<sd::Tensor<float>()>& run) {
  std::vector<double> ms;
  double sum = 0;
  for (int i = 0; i <= rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const sd::Tensor<float> made = run();
    const auto end = std::chrono::steady_clock::now();
    if (i > 0) ms.push_back(std::chrono::duration<double, std::milli>(end - start).count());
    if (made.empty()) {
      std::fprintf(stderr, "%s: no result\n", name.c_str());
      std::exit(1);
    }
    sum = 0;
    for (float x : made.values()) sum += std::abs(x);
    sum /= static_cast<double>(made.numel());
  }
  std::sort(ms.begin(), ms.end());
  std::printf("peer %s: least %.1f ms, median %.1f ms (mean size of a number %.3g)\n", name.c_str(),
              ms[0], ms[ms.size() / 2], sum);
  std::fflush(stdout);
}

void run_case(const std::string& name, int threads, int rounds) {
  std::vector<std::string> parts;
  std::stringstream stream(name);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  const ggml_type type = parts.at(1) == "q8_0" ? GGML_TYPE_Q8_0
                         : parts[1] == "bf16"  ? GGML_TYPE_BF16
                                               : GGML_TYPE_F16;
  const int64_t size = std::atoi(parts.at(2).c_str());
  const bool fast = parts.size() > 3;
  ggml_backend_t backend = ggml_backend_cpu_init();
  if (parts[0] == "flux") {
    String2TensorStorage known;
    for (const char* block : {"double_blocks.0.x", "single_blocks.0.x", "single_blocks.1.x",
                              "guidance_in.in_layer.weight"}) {
      known[block] = TensorStorage();
    }
    known["single_blocks.0.norm.key_norm.scale"].ne[0] = 128;
    String2TensorStorage types;
    {
      Flux::FluxRunner shapes(backend, false, known);
      types = types_of(tensors_of(shapes), type, known);
    }
    Flux::FluxRunner flux(backend, false, types);
    flux.set_flash_attention_enabled(fast);
    flux.alloc_params_buffer();
    fill(tensors_of(flux));
    const auto x = input({size / 8, size / 8, 16, 1}, 2), text = input({4096, kText, 1}, 3),
               pooled = input({768, 1}, 4);
    const sd::Tensor<float> timestep({1}, {500}), guidance({1}, {3500});
    time(name, rounds,
         [&] { return flux.compute(threads, x, timestep, text, {}, pooled, guidance); });
  } else if (parts[0] == "t5") {
    String2TensorStorage types;
    {
      T5Layers shapes(backend, {});
      types = types_of(tensors_of(shapes), type, {});
    }
    T5Layers t5(backend, types);
    t5.set_flash_attention_enabled(fast);
    t5.alloc_params_buffer();
    fill(tensors_of(t5));
    std::vector<int32_t> ids(kText);
    std::mt19937 random(2);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 32000);
    const sd::Tensor<int32_t> tokens({kText}, ids);
    time(name, rounds, [&] { return t5.run(threads, tokens); });
  } else {
    AutoEncoderKL vae(backend, false, {}, "", true, false, VERSION_FLUX);
    vae.set_conv2d_direct_enabled(fast);
    vae.alloc_params_buffer();
    fill(tensors_of(vae));
    const auto z = input({size / 8, size / 8, 16, 1}, 2);
    time(name, rounds, [&] { return vae._compute(threads, z, true); });
  }
  ggml_backend_free(backend);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 3; i < argc; ++i) run_case(argv[i], std::atoi(argv[1]), std::atoi(argv[2]));
}
