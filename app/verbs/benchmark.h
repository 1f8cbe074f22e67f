// `bert benchmark MODE`: steps, inference, kernels, data, ablation, precisions, communication.
#pragma once

namespace bert {

int benchmark_command(int argc, char** argv);

}  // namespace bert
