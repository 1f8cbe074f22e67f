// Damaged copies of valid bytes. The same seed gives the same copies on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bert::testing {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : state_(seed) {}

  /// Returns a copy that differs from `bytes` in one to three changes: flipped bits, cut ends, missing, repeated or
  /// inserted runs, integers (binary and decimal) that are huge, negative or of another kind, and splices: a run of any
  /// length from elsewhere in the file in place of other bytes or between them, and a head with a tail, of `bytes` or
  /// of `other`, a valid file of the same format, which the copy does not equal. The copy is at most a few MiB longer
  /// than both.
  std::string operator()(const std::string& bytes, const std::string& other = "");

  /// A number from 0 to bound - 1.
  size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }

 private:
  uint64_t next();
  void change(std::string& bytes, const std::string& other);
  void flip_bits(std::string& bytes);
  void cut(std::string& bytes);
  void remove_run(std::string& bytes);
  void repeat_run(std::string& bytes);
  void insert_run(std::string& bytes);
  void set_binary_integer(std::string& bytes);
  void set_decimal_number(std::string& bytes);
  void copy_run(std::string& bytes);
  void join(std::string& bytes, const std::string& other);

  uint64_t state_;
};

}  // namespace bert::testing
