#pragma once

#include <cstring>
#include <functional>

#include "braid/backend/backend.h"
#include "braid/backend/host_memory.h"

namespace braid::testing_runtime {

// Runs the scalar reference of each launch, one at a time in recorded order, and shows each call to
// whoever watches. Memory begins as NaN, so that what is read before it is written shows.
class SerialBackend : public Backend {
 public:
  std::function<void(int launch, const OpCall& call)> watch;
  int64_t replay_bytes = 0;  // that each bound step says it holds

  const KernelCatalog& catalog() const override { return catalog_; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    auto memory = std::make_unique<HostMemory>(bytes);
    std::memset(memory->data(), 0xff, static_cast<size_t>(memory->bytes()));
    return memory;
  }
  std::unique_ptr<Replay> bind(BoundStep step) override {
    return std::make_unique<Serial>(*this, std::move(step.launches));
  }

 private:
  struct Catalog : KernelCatalog {
    KernelInfo find(const Program&, const Op& op, Stream, const Extents&) const override {
      return {std::string(op.def->kind), 0};
    }
  };
  struct Serial : Replay {
    Serial(SerialBackend& b, std::vector<BoundOp> l) : backend(b), launches(std::move(l)) {}
    void run(std::span<LaunchTime>) override {
      for (size_t i = 0; i < launches.size(); ++i) {
        const BoundOp& l = launches[i];
        const OpCall call{l.op, l.in, l.out, l.axis, l.part};
        if (backend.watch) backend.watch(static_cast<int>(i), call);
        l.op->def->reference(call);
      }
    }
    int64_t device_bytes() const override { return bytes; }
    SerialBackend& backend;
    std::vector<BoundOp> launches;
    const int64_t bytes = backend.replay_bytes;
  };
  Catalog catalog_;
};

// Weights of a fixed seed and zeroed states, by name.
class Memory {
 public:
  TensorView operator()(const Value& value) {
    auto& data = held_[value.name];
    if (data.empty()) {
      data.resize(static_cast<size_t>(value.type.shape.elems()));
      uint64_t x = 1;
      for (char c : value.name) x = x * 131 + static_cast<uint8_t>(c);
      for (float& f : data) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        f = value.kind == ValueKind::state ? 0.0f
                                           : static_cast<float>(x >> 40) / float{1 << 23} - 1.0f;
      }
    }
    return make_view(reinterpret_cast<std::byte*>(data.data()), value.type.dtype, value.type.shape);
  }

 private:
  std::map<std::string, std::vector<float>> held_;
};

}  // namespace braid::testing_runtime
