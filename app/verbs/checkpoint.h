#pragma once

namespace bert {

/// `bert checkpoint list|verify|diff`; argv[0] is "checkpoint". Returns 0. Throws UsageError, DataError,
/// InputMissing, IoError.
int checkpoint_command(int argc, char** argv);

}  // namespace bert
