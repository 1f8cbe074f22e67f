#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>

#include "data/random/permutation.h"

namespace bert::testing {
namespace {

constexpr size_t kLongestRun = 64;
constexpr size_t kLengths = 12;  // a copied run is shorter than the file, or half or a quarter or ... of it
constexpr size_t kMostRepeated = size_t{1} << 20;  // bytes

/// Replacements for numbers: the ends of ranges, values beyond them, and values of other kinds.
constexpr std::array<std::string_view, 18> kNumbers = {"0",
                                                       "-1",
                                                       "1",
                                                       "127",
                                                       "65536",
                                                       "4294967296",
                                                       "9223372036854775807",
                                                       "-9223372036854775808",
                                                       "18446744073709551615",
                                                       "99999999999999999999999",
                                                       "1.5",
                                                       "1e308",
                                                       "1e999",
                                                       "-1e-999",
                                                       "null",
                                                       "true",
                                                       "[]",
                                                       "{}"};

/// Fragments that have a meaning in text or JSON, and bytes that must not occur there.
constexpr std::array<std::string_view, 16> kFragments = {
    "{",  "}",  "[",    "]",        "\"",   ",",       ":",       "\\",
    "/*", "\n", "\xff", "\xe2\x96", "null", "\\u0000", "\\ud800", "\xef\xbb\xbf"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

uint64_t Mutator::next() { return state_ = mix_bits(state_); }

std::string Mutator::operator()(const std::string& bytes, const std::string& other) {
  std::string changed = bytes;
  while (changed == bytes || (!other.empty() && changed == other)) {
    for (size_t changes = below(4) == 0 ? 3 : 1; changes > 0; --changes) change(changed, other);
  }
  return changed;
}

void Mutator::change(std::string& bytes, const std::string& other) {
  using Change = void (Mutator::*)(std::string&);
  constexpr Change kChanges[] = {&Mutator::flip_bits,          &Mutator::cut,        &Mutator::remove_run,
                                 &Mutator::repeat_run,         &Mutator::insert_run, &Mutator::set_binary_integer,
                                 &Mutator::set_decimal_number, &Mutator::copy_run};
  if (bytes.empty()) return insert_run(bytes);
  const size_t which = below(std::size(kChanges) + 1);
  if (which == std::size(kChanges)) return join(bytes, other);
  (this->*kChanges[which])(bytes);
}

void Mutator::flip_bits(std::string& bytes) {
  for (size_t flips = 1 + below(4); flips > 0; --flips) {
    char& byte = bytes[below(bytes.size())];
    byte = static_cast<char>(byte ^ 1 << below(8));
  }
}

void Mutator::cut(std::string& bytes) { bytes.resize(below(bytes.size())); }

void Mutator::remove_run(std::string& bytes) { bytes.erase(below(bytes.size()), 1 + below(kLongestRun)); }

void Mutator::repeat_run(std::string& bytes) {
  const size_t begin = below(bytes.size());
  const std::string run = bytes.substr(begin, 1 + below(kLongestRun));
  // One to three times in most cases, sometimes far more often.
  const size_t times = below(8) == 0 ? 1 + below(kMostRepeated / run.size()) : 1 + below(3);
  std::string repeated;
  repeated.reserve(times * run.size());
  for (size_t i = 0; i < times; ++i) repeated += run;
  bytes.insert(begin, repeated);
}

void Mutator::insert_run(std::string& bytes) {
  std::string run;
  if (below(2) == 0) {
    run = kFragments[below(kFragments.size())];
  } else {
    for (size_t i = 1 + below(kLongestRun); i > 0; --i) run += static_cast<char>(below(256));
  }
  bytes.insert(below(bytes.size() + 1), run);
}

void Mutator::set_binary_integer(std::string& bytes) {
  const size_t width = std::min(size_t{1} << below(4), bytes.size());
  size_t at = below(bytes.size() - width + 1);
  if (below(4) != 0) at = at / width * width;  // files keep most integers at aligned places
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, width);
  const std::array<uint64_t, 8> values = {
      0,         1,         ~uint64_t{0}, uint64_t{1} << (8 * width - 1), (uint64_t{1} << (8 * width - 1)) - 1,
      value + 1, value - 1, value * 2};
  std::memcpy(bytes.data() + at, &values[below(values.size())], width);
}

void Mutator::set_decimal_number(std::string& bytes) {
  const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size()));
  const auto begin = std::find_if(from, bytes.end(), is_digit);
  if (begin == bytes.end()) return set_binary_integer(bytes);
  const auto end = std::find_if_not(begin, bytes.end(), is_digit);
  bytes.replace(begin, end, kNumbers[below(kNumbers.size())]);
}

void Mutator::copy_run(std::string& bytes) {
  const size_t length = 1 + below(std::max<size_t>(1, bytes.size() >> below(kLengths)));
  const std::string run = bytes.substr(below(bytes.size()), length);
  const size_t at = below(bytes.size() + 1);
  bytes.replace(at, below(2) == 0 ? 0 : run.size(), run);  // inserts, or overwrites
}

void Mutator::join(std::string& bytes, const std::string& other) {
  const std::string& tail = other.empty() ? bytes : other;
  const size_t cut = below(bytes.size());
  // Files of one format have much at the same places, so half of the cuts are at the same place in both.
  const size_t from = below(2) == 0 ? std::min(cut, tail.size()) : below(tail.size() + 1);
  const bool ends_with_other = below(2) == 0;
  bytes = ends_with_other ? bytes.substr(0, cut) + tail.substr(from) : tail.substr(0, from) + bytes.substr(cut);
}

}  // namespace bert::testing
