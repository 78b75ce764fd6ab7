#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/fused_attention/device/fused_launch.h"
#include "braid/ops/attention_block.h"

namespace braid::cuda::test {

struct FusedSpec {
  FusedShape shape;
  int context = 1;  // keys, the new one included
  // Of several tokens: keys of each sequence, and its new tokens. Empty: `context`, one token.
  std::vector<int> contexts = {};
  std::vector<int> fresh = {};
  int live = 0;  // tokens; 0: all
  bool adds = true;
  bool biases = false;
  bool normed_heads = false;
  bool interleaved = false;
  int rotary_dim = 0;  // 0: all of a head
  int window = 0;
  float score_scale = 0;   // 0: of the head dim
  bool aligned = false;    // keys are near each other and to q: with biases
  bool keeps_slot = true;  // false: the new key goes nowhere
  uint64_t seed = 1;
};

std::string to_string(const FusedSpec& spec);

// A block of random data: its reference on the host, and runs of the kernel.
class FusedCase {
 public:
  explicit FusedCase(const FusedSpec& spec);

  // Runs once on poisoned outputs and a fresh cache; what comes out: the sum, the result, the
  // caches.
  std::vector<std::byte> run(const FusedConfig& config);
  // Repeats the launch without putting anything back; the result's bytes of the last.
  std::vector<std::byte> repeat(const FusedConfig& config, int times);
  // Empty, or where `output` of that scope differs from the reference.
  std::string check(const std::vector<std::byte>& output, FusedScope scope) const;
  // A token's row of the result in `output`.
  std::span<const std::byte> row_of(const std::vector<std::byte>& output, FusedScope scope,
                                    int token) const;
  // Makes the token's input no number, for later runs.
  void spoil(int token);
  // Takes all keys from a sequence of one token, for later runs.
  void empty(int sequence);
  // Makes the reference of other attributes.
  void set_reference(const ops::AttentionAttrs& attrs);
  const ops::AttentionBlockAttrs& attrs() const { return attrs_; }

 private:
  struct Tensor {
    DType dtype = DType::f32;
    Shape shape;
    std::vector<std::byte> host;
    std::unique_ptr<CudaMemory> device;
    TensorView view();
    template <class T>
    T* at() {
      return device == nullptr ? nullptr : reinterpret_cast<T*>(device->data());
    }
  };
  void fill(Tensor& t, DType dtype, const Shape& shape, float stddev, float mean = 0);
  void ints(Tensor& t, const Shape& shape, const std::vector<int32_t>& values);
  void make_sequences();
  bool adds() const { return spec_.adds && spec_.shape.normed; }
  void upload();
  FusedArgs args();

  FusedSpec spec_;
  ops::AttentionBlockAttrs attrs_;
  std::vector<Tensor> inputs_;  // by BlockInput
  Tensor turns_, rows_, sequences_, sum_, attended_, projected_;
  struct Reference {
    std::vector<std::byte> sum, attended, projected, cache_k, cache_v;
  } reference_;
};

}  // namespace braid::cuda::test
