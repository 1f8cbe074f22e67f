// `bert predict` and `bert export`.
#pragma once

namespace bert {

int predict_command(int argc, char** argv);
int export_command(int argc, char** argv);

}  // namespace bert
