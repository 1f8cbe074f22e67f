// NCCL's types and operations on host memory.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

namespace null_device {

/// Bytes of an element; 0 for a type that is not made.
size_t element_bytes(ncclDataType_t type);
/// "float32"; the number of a type that is not made.
std::string type_name(ncclDataType_t type);
/// "sum"; empty for an operation that is not made.
std::string operation_name(ncclRedOp_t operation);

/// Combines the elements of all ranks, that of rank 0 first, and rounds to the type after every step. A mean of real
/// numbers is the sum of the elements times 1 / ranks, each rounded, as NCCL computes it.
void combine(ncclDataType_t type, ncclRedOp_t operation, const std::vector<const void*>& of_ranks, size_t count,
             void* result);

}  // namespace null_device
