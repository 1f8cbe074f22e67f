// The verbs of `bert`: the functions that run them, and one table of all.
#pragma once

namespace bert {

// A verb's function takes the verb's command line; argv[0] is the verb. Results go to standard output; progress and
// messages to standard error. It returns an exit code (app/system/exit_codes.h) and throws what guarded() turns into
// one: UsageError, ConfigError, DataError, InputMissing, IoError and the others of app/system/errors.h.
int benchmark_command(int argc, char** argv);
int checkpoint_command(int argc, char** argv);
int config_command(int argc, char** argv);
int data_command(int argc, char** argv);
int doctor_command(int argc, char** argv);
int export_command(int argc, char** argv);
int plan_command(int argc, char** argv);
int predict_command(int argc, char** argv);
int pretrain_command(int argc, char** argv);
int tokenize_command(int argc, char** argv);
int version_command(int argc, char** argv);
int vocab_command(int argc, char** argv);

}  // namespace bert
