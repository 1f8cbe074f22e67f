#pragma once

namespace bert {

/// `bert plan`; argv[0] is "plan". Returns 0. Throws UsageError, ConfigError, DataError, InputMissing.
int plan_command(int argc, char** argv);

}  // namespace bert
