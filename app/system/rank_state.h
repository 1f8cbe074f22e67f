// The state of a rank, which its launcher can read after any death of the rank: 512 bytes of shared memory.
//
// Note [State of a rank]
// A killed rank cannot write an error file. So bertrun creates an unnamed file in memory for each rank. The rank
// inherits the descriptor and finds it by the variable BERTRUN_STATE (/proc/self/fd/N). The rank maps the file and
// copies its phase and its last collective there whenever they change: two bounded copies, no system call. Nothing
// stays on a disk. It works without log files and in a container. Without such a file (another launcher, or a child
// that has closed the descriptor) nothing is written. A file with a name is not accepted.
#pragma once

#include <string>
#include <string_view>

namespace bert {

inline constexpr const char* kRankStateVariable = "BERTRUN_STATE";

/// For the rank. Longer texts are cut. The two functions may run at the same time in different threads, but each in one
/// thread only.
void publish_phase(std::string_view phase);                 // at most 63 bytes
void publish_last_collective(std::string_view collective);  // at most 447 bytes

/// For the launcher: creates an empty state. Returns a close-on-exec descriptor, or -1 if there is none to be had; a
/// rank starts without it then.
int make_rank_state();

/// The published state; "" before the first publication.
struct RankState {
  std::string phase, last_collective;
};
RankState read_rank_state(int descriptor);

}  // namespace bert
