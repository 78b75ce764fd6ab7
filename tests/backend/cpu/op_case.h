#pragma once

#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/register.h"

// Kernels of any op against its scalar reference, through the kernel table.
namespace braid::cpu::testing {

// One op on random operands; an input of rank 0 is absent.
struct OpCase {
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<ValueType> in;
  double tolerance = 1e-5;  // beside values of about 1
};

class OpRun {
 public:
  OpRun(const OpCase& c, uint32_t seed) : case_(c), random_(seed) {
    for (const ValueType& type : c.in) {
      in_.push_back(type.dtype == DType::i32 ? lengths(type) : floats(type));
    }
    types_ = c.def->infer(c.attrs, c.in);
  }

  // All outputs in a row, by the kernels of an instruction set or by the reference.
  std::vector<float> run(int threads, Isa isa, bool reference) {
    Op op{.def = case_.def, .attrs = case_.attrs};
    std::vector<TensorView> in, out;
    for (size_t i = 0; i < in_.size(); ++i) {
      const bool there = case_.in[i].shape.rank() > 0;
      in.push_back(there ? view(in_[i], case_.in[i]) : TensorView{});
    }
    std::vector<std::vector<float>> outputs;
    for (const ValueType& type : types_) outputs.push_back(poisoned(type.shape.elems()));
    for (size_t i = 0; i < outputs.size(); ++i) out.push_back(view(outputs[i], types_[i]));
    BatchPart part;
    const OpCall call{.op = &op, .in = in, .out = out, .part = &part};
    if (reference) {
      case_.def->reference(call);
    } else {
      KernelTable table(threads);
      add_cpu_kernels(table, isa);
      const Kernel& kernel = table.at(case_.def->kind);
      const int64_t bytes = kernel.info(op, case_.in, types_, threads).workspace_bytes;
      std::vector<float> workspace(static_cast<size_t>(bytes) / 4 + 32, kNaN);
      auto* begin = reinterpret_cast<std::byte*>(workspace.data());
      begin += round_up(reinterpret_cast<intptr_t>(begin), 64) - reinterpret_cast<intptr_t>(begin);
      const BoundKernel bound = kernel.bind({.call = call, .workspace = begin, .threads = threads});
      on_team(threads, bound);
    }
    std::vector<float> all;
    for (const auto& output : outputs) all.insert(all.end(), output.begin(), output.end());
    return all;
  }

 private:
  // Key lengths: the set includes 0 and a length above the number of keys.
  std::vector<float> lengths(const ValueType& type) {
    std::vector<float> raw(static_cast<size_t>(type.shape.elems()));
    for (size_t i = 0; i < raw.size(); ++i) {
      const int32_t n = i == 0 ? 0 : i == 1 ? 1000 : std::uniform_int_distribution(1, 9)(random_);
      std::memcpy(&raw[i], &n, sizeof(n));
    }
    return raw;
  }
  // Random values in the bytes of a type.
  std::vector<float> floats(const ValueType& type) {
    const std::vector<float> values = random_floats(random_, type.shape.elems());
    if (type.dtype == DType::f32 || values.empty()) return values;
    std::vector<float> raw(values.size());
    quantize_row(type.dtype, values.data(), reinterpret_cast<std::byte*>(raw.data()),
                 std::ssize(values));
    return raw;
  }
  static TensorView view(std::vector<float>& data, const ValueType& type) {
    return make_view(reinterpret_cast<std::byte*>(data.data()), type.dtype, type.shape);
  }

  const OpCase& case_;
  std::mt19937 random_;
  std::vector<std::vector<float>> in_;
  std::vector<ValueType> types_;
};

inline void check(const OpCase& c, uint32_t seed) {
  SCOPED_TRACE(::testing::Message()
               << c.def->kind << " {" << to_string(c.attrs) << "}, seed " << seed);
  OpRun run(c, seed);
  const std::vector<float> want = run.run(1, Isa::baseline, true);
  for (Isa isa : usable_isas()) {
    for (int threads : {1, 3}) {
      SCOPED_TRACE(::testing::Message() << name(isa) << ", " << threads << " threads");
      const std::vector<float> got = run.run(threads, isa, false);
      ASSERT_EQ(got.size(), want.size());
      Worst worst;
      for (size_t i = 0; i < got.size(); ++i) {
        worst.see(static_cast<int64_t>(i), got[i], want[i],
                  c.tolerance * std::max(1.0f, std::abs(want[i])));
      }
      expect_close(worst);
    }
  }
}

inline ValueType f32(const Shape& shape) {
  return {DType::f32, shape};
}
inline const ValueType kAbsent = {};

}  // namespace braid::cpu::testing
