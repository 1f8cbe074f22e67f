// Programs that tests run as processes of their own: a rank, or a process with other variables. A program is code of the
// test binary, but no test case: nothing runs it but a test.
#pragma once

namespace bert::testing {

/// A program, defined at the begin of a test's file. A process of the test binary runs the program alone where its
/// environment names the program. Assertions work as in a test case; the process ends with 0 if all hold.
struct TestProgram {
  static constexpr const char* kVariable = "BERT_TEST_PROGRAM";

  TestProgram(const char* program, void (*run)());  // defined in main.cc
  const char* name;
};

}  // namespace bert::testing
