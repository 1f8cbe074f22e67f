// `bert doctor` and `bert version`: work where LibTorch does not load.
#pragma once

namespace bert {

int doctor_command(int argc, char** argv);
int version_command(int argc, char** argv);

}  // namespace bert
