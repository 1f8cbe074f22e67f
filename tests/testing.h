// The one header through which tests use Catch2. Include it last: torch and Catch2 both define CHECK.
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

/// Prints "SKIPPED: <reason>", which tests/run.sh counts, and returns from the test. Catch2 2 has no SKIP.
#define BERT_SKIP(reason)             \
  do {                                \
    bert::testing::skipped(reason);   \
    SUCCEED("skipped: " << (reason)); \
    return;                           \
  } while (false)

void skipped(const std::string& reason);  // main.cc

/// ../shared/data beside the source tree, or "" where it is absent. BERT_SOURCE_DIR is the source tree's root.
std::string shared_data();

/// tests/golden/<name>. Throws where it is absent.
std::string golden(const std::string& name);

/// A fresh directory, removed at the end of the scope.
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

/// Tolerances by dtype, the one table: |got - want| <= absolute + relative * |want|.
struct Tolerance {
  double absolute, relative;
};
inline constexpr Tolerance kDouble{1e-9, 1e-7}, kFloat{1e-5, 1e-5}, kHalf{2e-3, 2e-3}, kBFloat16{1.6e-2, 1.6e-2};

}  // namespace bert::testing
