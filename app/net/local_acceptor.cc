#include "app/net/local_acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include "app/net/socket.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// The reason to refuse a connection; "" if there is none.
std::string refusal(const PeerFinder& peers, int connection) {
  try {
    const SocketOwner owner = peers.owner_of_peer(connection);
    if (owner.inode == 0) return "closed before their check";  // such sockets show user 0
    return owner.user == geteuid() ? "" : "of user " + std::to_string(owner.user);
  } catch (const IoError& error) {
    return error.what();
  }
}

}  // namespace

LocalAcceptor::LocalAcceptor(EventLoop& loop, Descriptor listener, std::function<void(Descriptor)> accepted)
    : accepted_(std::move(accepted)),
      peers_(listener.get()),
      turned_away_(loop, port_of(listener.get())),
      acceptor_(loop, std::move(listener), [this](Descriptor connection) { check(std::move(connection)); }) {}

void LocalAcceptor::check(Descriptor connection) {
  const std::string reason = refusal(peers_, connection.get());
  if (reason.empty()) return accepted_(std::move(connection));
  turned_away_.count(reason, peer_of(connection.get()));
  // A reset leaves nothing behind. An orderly close would keep the pair of ports for a minute.
  const linger reset{1, 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

}  // namespace bert
