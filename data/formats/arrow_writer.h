// Parts of libbert_arrow.so: calls of Arrow, and the writer of examples. See Note [Arrow apart].
#pragma once

#include <arrow/memory_pool.h>
#include <arrow/result.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/io/arrow_library.h"

namespace bert {

/// A call of Arrow that failed, with its message.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(const arrow::Status& status) {
  if (!status.ok()) throw Failed(status.ToString());
}

template <class T>
T get(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

/// Memory of the C library: the default pool of Arrow reserves address space, which a child has little of.
inline arrow::MemoryPool* pool() { return arrow::system_memory_pool(); }

/// The writer of ArrowLibrary::create(). Throws Failed.
std::unique_ptr<ArrowWriter> make_arrow_writer(const std::string& path, const ArrowSchema& schema,
                                               const ArrowMetadata& metadata);

}  // namespace bert
