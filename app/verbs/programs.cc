#include "app/verbs/programs.h"

#include <string>
#include <utility>

#include "app/cli/command_line.h"
#include "app/launcher/settings/options.h"
#include "app/system/exit_codes.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"

namespace bert {
namespace {

struct DescribedVerb {
  const char* name;
  int (*run)(int argc, char** argv);  // nullptr: libbert.so has it
  const char* help;
};

#define BERT_CORE_VERB(name, function, traits, help) {name, function, help},
#define BERT_TORCH_VERB(name, function, traits, help) {name, nullptr, help},
#define BERT_BOTH_VERB(name, function, torch_function, traits, help) {name, function, help},
constexpr DescribedVerb kDescribedVerbs[] = {BERT_VERBS(BERT_CORE_VERB, BERT_TORCH_VERB, BERT_BOTH_VERB)};
#undef BERT_CORE_VERB
#undef BERT_TORCH_VERB
#undef BERT_BOTH_VERB

CommandDescription describe_bert() {
  CommandDescription bert;
  bert.name = "bert";
  bert.summary = "pre-train BERT from raw text";
  bert.text = kProgramText;
  bert.examples = {kProgramExample};
  OptionDescription help;
  help.names = {"-h", "--help"};
  help.help = "print the verbs";
  OptionDescription version;
  version.names = {"--version"};
  version.help = "print the versions of bert and LibTorch";
  bert.options = {help, version};
  for (const DescribedVerb& verb : kDescribedVerbs) {
    CommandDescription description =
        verb.run == nullptr ? describe_in_torch_library(verb.name) : describe_command(verb.run, verb.name);
    description.name = std::string("bert ") + verb.name;
    description.summary = verb.help;
    bert.actions.push_back(std::move(description));
  }
  return bert;
}

int read_bertrun(int argc, char** argv) {
  read_launch_command(argc, argv);
  return kOk;
}

}  // namespace

Programs describe_programs() {
  Programs programs{.bert = describe_bert(), .bertrun = describe_command(read_bertrun, "bertrun")};
  programs.bertrun.summary = "start the ranks of a program on one or many machines";
  return programs;
}

}  // namespace bert
