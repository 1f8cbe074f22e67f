// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace bert {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = other.release();
    }
    return *this;
  }
  ~Descriptor() { reset(); }
  [[nodiscard]] int get() const { return value_; }
  /// True if a file is open. open() and similar calls return -1 on error, which counts as no file.
  [[nodiscard]] explicit operator bool() const { return value_ >= 0; }
  int release() { return std::exchange(value_, -1); }
  void reset() {
    if (value_ >= 0) close(value_);
    value_ = -1;
  }

 private:
  int value_ = -1;
};

}  // namespace bert
