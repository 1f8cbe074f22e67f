// Parts of the operators' argument checks. All throw c10::Error that names the operator (`op`), the argument (`name`),
// the expected value and the actual one. Ids, labels and lengths are checked on the CPU only: on another device a check
// would wait for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace bert::checks {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The tensor must be dense and contiguous, of this shape (-1: any), on the device of `like`.
void check_tensor(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like);

/// As check_tensor(), and of any floating-point dtype.
void check(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like);

/// The tensor must have this dtype. `why` tells where the dtype comes from.
void check_type(const char* op, const char* name, const Tensor& tensor, at::ScalarType type, const char* why,
                const char* remedy = "");

/// A result of the forward for its backward: mean, rstd or logsumexp of activations like these.
void check_statistic(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like);

void check_integers(const char* op, const char* name, const Tensor& tensor, int64_t size, at::ScalarType type,
                    const Tensor& like);

/// Ids on the CPU must lie in [0, high).
void check_range(const char* op, const char* name, const Tensor& ids, int64_t high);

/// Probability, site, and, if p > 0, the keys of `tokens` tokens (-1: any).
void check_keys(const char* op, double p, int64_t site, const OptionalTensor& keys, int64_t tokens, const Tensor& like);

/// A mask that the forward kept (Note [Kept masks]), or an empty tensor.
void check_kept(const char* op, const Tensor& kept, int64_t rows, int64_t columns, const Tensor& like);

/// Lengths on the CPU must lie in [0, high]. Returns the number of tokens, or -1 on another device.
int64_t check_lengths(const char* op, const Tensor& cu_seqlens, int64_t high);

void check_eps(const char* op, double eps);

/// The tensor must be [T, ...]. Returns the number of columns of a row.
int64_t check_rows(const char* op, const char* name, const Tensor& tensor);

}  // namespace bert::checks
