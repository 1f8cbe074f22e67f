// Shared by the files of bert_bench.
#pragma once

namespace bert {

/// Bytes per second of a copy of 256 MiB, read and written, measured once.
double copy_bandwidth();

/// The optimizer's loops, on BERT-base's parameters: optim_bench.cc.
void register_optimizer_benchmarks();

}  // namespace bert
