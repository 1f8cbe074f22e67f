// The parts of what programs of the project link: project.cc knows LibTorch and CUDA, project_launches.cc the emulator.
// Their headers do not go together.
#pragma once

#include <cstdint>
#include <string>

struct CUstream_st;

namespace null_device {

/// That of operators.h.
void count_launch();

/// Why a kernel on the current device may not get this word as an argument, or empty. Numbers are fine.
std::string objection_to(uintptr_t word);

/// Why a kernel may not be launched on this stream, or empty: the current stream of the current device is its place.
std::string objection_to_stream(CUstream_st* stream);

/// From now on the emulator's launches are work of streams.
void queue_launches();

}  // namespace null_device
