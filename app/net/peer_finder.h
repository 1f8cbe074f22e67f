// The user at the other end of a TCP connection on this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "data/io/descriptor.h"

namespace bert {

struct SocketOwner {
  uid_t user = 0;      // without meaning if `inode` is 0
  uint64_t inode = 0;  // 0: the socket is closed and belongs to nobody
};

/// Asks the kernel who owns sockets of this network namespace: through sock_diag, which looks one socket up, or, if
/// the kernel does not offer sock_diag (gVisor), in the tables in /proc/net, which hold all sockets.
class PeerFinder {
 public:
  /// `listener`: a listening socket of this process. Its lookup shows if sock_diag answers.
  explicit PeerFinder(int listener);

  /// The owner of the other end of an accepted connection. Throws IoError if the kernel tells nothing.
  [[nodiscard]] SocketOwner owner_of_peer(int connection) const;

 private:
  Descriptor diag_;  // none: sock_diag does not answer
};

/// The same from the tables `tcp` and `tcp6` in a directory, which have the format of those in /proc/net.
SocketOwner owner_of_peer_in_tables(const std::string& directory, int connection);

}  // namespace bert
