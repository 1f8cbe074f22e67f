// What the operators' argument checks are made of. All throw c10::Error that names the operator (`op`), the argument
// (`name`), what is expected and what it is. The CPU's ids, labels and lengths are looked at; those on another device are
// not, as that would wait for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace bert::checks {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// One tensor: dense, of this shape (-1: any), contiguous, on the device of `like`.
void check_tensor(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like);

/// Floating point, of any dtype.
void check(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like);

/// Of a dtype that follows from that of `like`.
void check_type(const char* op, const char* name, const Tensor& tensor, at::ScalarType type, const char* why,
                const char* remedy = "");

/// What a forward left for its backward: mean, rstd or logsumexp of activations like these.
void check_statistic(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like);

void check_integers(const char* op, const char* name, const Tensor& tensor, int64_t size, at::ScalarType type,
                    const Tensor& like);

/// Ids on the CPU lie in [0, high).
void check_range(const char* op, const char* name, const Tensor& ids, int64_t high);

/// Keys of `tokens` tokens (-1: any).
void check_keys(const char* op, double p, int64_t site, const OptionalTensor& keys, int64_t tokens, const Tensor& like);

/// A mask that forward kept (Note [Kept masks]), or nothing.
void check_kept(const char* op, const Tensor& kept, int64_t rows, int64_t columns, const Tensor& like);

/// Lengths on the CPU lie in [0, high]; returns the number of tokens (-1 where nobody looks).
int64_t check_lengths(const char* op, const Tensor& cu_seqlens, int64_t high);

void check_eps(const char* op, double eps);

/// [T, ...]; returns the columns of a row.
int64_t check_rows(const char* op, const char* name, const Tensor& tensor);

}  // namespace bert::checks
