#pragma once

namespace bert {

/// `bert config validate|show|schema|diff`; argv[0] is "config". Returns 0. Throws UsageError, ConfigError,
/// InputMissing.
int config_command(int argc, char** argv);

}  // namespace bert
