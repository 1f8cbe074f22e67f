// The program `bert`: verbs as in git. This executable holds the verbs that need no LibTorch; libbert.so holds the
// others.
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/libbert.h"
#include "app/system/standard_streams.h"
#include "app/system/stop_signals.h"
#include "app/verbs/programs.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"

namespace bert {
namespace {

struct Verb {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* help;
};

#define BERT_CORE_VERB(name, function, traits, help) {name, function, help},
#define BERT_TORCH_VERB(name, function, traits, help) {name, run_in_torch_library, help},
#define BERT_BOTH_VERB(name, function, torch_function, traits, help) {name, function, help},
constexpr Verb kVerbs[] = {BERT_VERBS(BERT_CORE_VERB, BERT_TORCH_VERB, BERT_BOTH_VERB)};
#undef BERT_CORE_VERB
#undef BERT_TORCH_VERB
#undef BERT_BOTH_VERB

void print_help(FILE* stream) {
  std::fprintf(
      stream,
      "bert: pre-train BERT from raw text\n\nUsage: bert VERB ARGUMENTS...   (bert VERB --help shows the options)\n\n");
  for (const Verb& verb : kVerbs) std::fprintf(stream, "  %-11s %s\n", verb.name, verb.help);
  std::fprintf(stream, "\nExample: %s\n\n", kProgramExample);
  constexpr size_t kWidth = 110;
  for (const std::string& line : wrapped(kExitCodes, kWidth)) std::fprintf(stream, "%s\n", line.c_str());
}

int run(int argc, char** argv) {
  if (argc < 2) {
    print_help(stderr);
    return kUsage;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    return guarded("bert", [] {
      print_help(stdout);
      return kOk;
    });
  }
  const auto in_directory = [&](int (*verb)(int, char**)) {
    check_current_directory();
    return verb(argc - 1, argv + 1);
  };
  if (name == "--version") return guarded("bert", [&] { return in_directory(version_command); });
  for (const Verb& verb : kVerbs) {
    if (name == verb.name) return guarded("bert " + name, [&] { return in_directory(verb.run); });
  }
  std::vector<std::string> known;
  for (const Verb& verb : kVerbs) known.emplace_back(verb.name);
  std::fprintf(stderr, "bert: %s\n", unknown_word("verb", name, known, "bert").c_str());
  return kUsage;
}

}  // namespace
}  // namespace bert

int main(int argc, char** argv) {
  bert::occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file size then fails with path and message
  return bert::run(argc, argv);
}
