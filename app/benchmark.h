// `bert benchmark step|inference`.
#pragma once

namespace bert {

int benchmark_command(int argc, char** argv);

}  // namespace bert
