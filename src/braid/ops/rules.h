#pragma once

#include <vector>

#include "braid/program/builder.h"
#include "braid/program/op.h"
#include "braid/tensor/quant.h"

// Shared by the definitions in this folder: checks of operand types, common costs and sharding
// rules, and row access for the scalar references.
namespace braid::ops {

// Fails with kInvalidArgument, naming the op, the operand and the dimension that is wrong.
void require_rank(std::string_view op, std::string_view operand, const ValueType& type, int rank);
void require_dim(std::string_view op, std::string_view operand, const ValueType& type, int dim,
                 int64_t want);
void require_dtype(std::string_view op, std::string_view operand, const ValueType& type,
                   DType want);
void require_float(std::string_view op, std::string_view operand, const ValueType& type);

// Bytes of a value at a step's extents.
double live_bytes(const ValueType& type, const Work& work);
double live_elems(const ValueType& type, const Work& work);

// Bytes of all operands once, and `flops_per_output` per element in the first output.
Cost elementwise_cost(TypeList in, TypeList out, const Work& work, double flops_per_output);

// All inputs replicated, all outputs replicated.
ShardRule replicate_all(size_t inputs, size_t outputs);

// Row r of a float view as f32, and back: beyond the range of f16 come its largest numbers.
std::vector<float> load_row(const TensorView& view, int64_t r);
void store_row(const TensorView& view, int64_t r, const std::vector<float>& row);

}  // namespace braid::ops
