// The meeting of the ranks of a job at a store that earlier ranks may have used.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace bert {

/// Note [Rounds]
/// A launcher may start ranks anew at a store that earlier ranks have used: torchrun does when a machine comes or goes,
/// with another number of ranks and without a change of its restart count. Dead ranks leave keys. Nothing in the
/// environment of a rank tells its round, so the ranks of a round find each other as follows.
///
/// Each rank 0 opens a round: its number is a counter in the store, so no two have the same. Rank 0 voids the rounds
/// before its own that are undecided. The other ranks enter the newest open round and wait for its outcome, one key with
/// a single decision (compareSet):
///
///   go       by its rank 0, when all ranks have entered; it has the tickets of its ranks. A ticket is the number of a
///            process at the store. A rank belongs to the round only if its own ticket is in it.
///   void     by the rank 0 of a later round. Ranks that had entered go on to a later round. The rank 0 that finds its own
///            round void ends: another process is rank 0.
///   refused  by its rank 0: two processes have one rank, or the ranks are of jobs of different size. All ranks that have
///            entered end with the reason.
///
/// A rank that comes before its rank 0 finds an old round: one that is decided without its ticket, and it waits for the
/// next; or an undecided one whose rank 0 is dead, and it enters it until the new rank 0 voids it. A dead process can be
/// in the list of a round only if it has died after the rank 0 of this round has opened it, so it was a rank of this
/// round. A launcher that starts ranks while ranks of the last round still live makes two processes with one rank. They
/// never join one group: one of them is in the go, or neither.
///
/// A process that comes to a round that has begun is indistinguishable from one of a round whose rank 0 is still to
/// come. So it looks for the life of the last round: if its rank 0 and the process of the same rank beat (Note [Who is
/// missing]), the rank has come twice. A launcher ends the ranks of a round before it begins the next.
///
/// A rank makes about ten requests and looks for the outcome: Note [Requests to the store].

struct Entrant {
  int rank = 0, size = 0;             // this rank, and the number of ranks of its job
  std::chrono::milliseconds timeout;  // of the whole meeting
  std::string advice = {};            // for the case that a rank does not come
};

/// Returns the number of the round when all of its ranks have come: the same on all of them, and in no other round of
/// this store. Throws ConfigError if two processes have one rank or the jobs differ in size; PeerError with the missing
/// ranks after the timeout.
int64_t join_round(c10d::Store& store, const Entrant& entrant);

/// The prefix of the keys of a round's group.
std::string group_prefix(int64_t round);

}  // namespace bert
