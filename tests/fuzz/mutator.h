// Damaged copies of valid bytes: the same ones for the same seed, on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bert::testing {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : state_(seed) {}

  /// A copy that differs from `bytes` by one change or three: flipped bits, cut ends, runs that are missing, repeated
  /// or inserted, integers (binary and decimal) that are huge, negative or of another kind. At most a few MiB longer.
  std::string operator()(const std::string& bytes);

  /// 0 .. bound - 1.
  size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }

 private:
  uint64_t next();
  void change(std::string& bytes);
  void flip_bits(std::string& bytes);
  void cut(std::string& bytes);
  void remove_run(std::string& bytes);
  void repeat_run(std::string& bytes);
  void insert_run(std::string& bytes);
  void set_binary_integer(std::string& bytes);
  void set_decimal_number(std::string& bytes);

  uint64_t state_;
};

}  // namespace bert::testing
