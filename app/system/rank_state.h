// What a rank is doing, where its launcher finds it after any death of the rank: 512 bytes of memory that both share.
//
// Note [State of a rank]
// A rank that is killed cannot write an error file. So bertrun makes a nameless file in memory for each rank, which the
// rank inherits and finds by the variable BERTRUN_STATE (/proc/self/fd/N); it maps it, and its phase and its last
// collective are copied there as they change: two bounded copies, no system call. Nothing is left on a disk, and it
// works without log files and in a container. Under another launcher, or in a child that has closed the descriptor,
// there is no such file: then nothing is written. A file with a name is never taken for it.
#pragma once

#include <string>
#include <string_view>

namespace bert {

inline constexpr const char* kRankStateVariable = "BERTRUN_STATE";

/// In a rank. Texts that are too long are cut short. Threads may call them at the same time, each from one at a time.
void publish_phase(std::string_view phase);                 // up to 63 bytes
void publish_last_collective(std::string_view collective);  // up to 447 bytes

/// In the launcher: a new state, with nothing in it, as a descriptor that is closed on exec; -1 when there is none to
/// be had, which is no reason not to start a rank.
int make_rank_state();

/// What the rank has published; "" before it has.
struct RankState {
  std::string phase, last_collective;
};
RankState read_rank_state(int descriptor);

}  // namespace bert
