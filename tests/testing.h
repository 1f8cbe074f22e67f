// The only header through which tests use Catch2. Include it last, because torch and Catch2 both define CHECK.
#pragma once

#ifdef CHECK
#undef CHECK
#endif
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <exception>
#include <filesystem>
#include <string>

namespace bert::testing {

#if __has_include(<catch2/catch_test_macros.hpp>)
using Catch::Approx;
inline auto Contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
#else
using Catch::Detail::Approx;
using Catch::Matchers::Contains;
#endif

/// Prints "SKIPPED: <reason>", which tests/run.sh counts, and returns from the test. (Catch2 2 has no SKIP.)
#define BERT_SKIP(reason)             \
  do {                                \
    bert::testing::skipped(reason);   \
    SUCCEED("skipped: " << (reason)); \
    return;                           \
  } while (false)

void skipped(const std::string& reason);  // defined in main.cc

/// Path of ../shared/data beside the source tree, or "" if it is absent. BERT_SOURCE_DIR is the root of the source
/// tree.
std::string shared_data();

/// Path of tests/golden/<name>. Throws if it is absent.
std::string golden(const std::string& name);

/// A new directory, removed at the end of the scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] std::string path(const std::string& name = "") const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// The message of the error that `action` throws; empty if it throws none.
template <class Error = std::exception, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Tolerances by dtype, defined only here: |got - want| <= absolute + relative * |want|.
struct Tolerance {
  double absolute, relative;
};
inline constexpr Tolerance kDouble{1e-9, 1e-7}, kFloat{1e-5, 1e-5}, kHalf{2e-3, 2e-3}, kBFloat16{1.6e-2, 1.6e-2};

}  // namespace bert::testing
