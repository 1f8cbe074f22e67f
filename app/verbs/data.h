// `bert data ACTION`: text to pre-training examples, and what can be asked of them.
#pragma once

namespace bert {

/// create, split, verify, show, stats. argv[0] is the verb, argv[1] the action. Results go to stdout, progress to
/// stderr. Returns an exit code; throws UsageError, DataError, InputMissing, IoError.
int data_command(int argc, char** argv);

}  // namespace bert
