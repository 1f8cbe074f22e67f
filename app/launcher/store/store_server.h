// The job's store: a server of c10d's TCPStore protocol on a loopback socket, in the launcher's own process.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "app/launcher/store/key_value_store.h"
#include "app/launcher/store/store_protocol.h"
#include "app/net/event_loop.h"
#include "app/net/local_acceptor.h"
#include "app/net/socket.h"

namespace bert {

/// Listens on loopback from the start, so that ranks can connect at once and no other process takes the port. Serves
/// processes of its own user only. Each round has an empty store, so that no key of an earlier attempt remains.
///
/// A client's next request is read when its last answer has been sent, so a client that does not read costs no more
/// than one answer, and values are shared, not copied. A request that would exceed the limit of memory, or that breaks
/// the protocol, ends its connection; at most every ten seconds a line names such a rank. No other connection and no key is touched.
class StoreServer {
 public:
  /// The limit of memory for keys, values, requests and answers. Gloo's full mesh is the largest known user: each rank
  /// stores 8 bytes for each rank of a group, 8 KiB of 1,024 ranks. Requests up to kFreeRequest do not count against
  /// the limit, so that a full store can still be read.
  static constexpr size_t kMemory = 64 << 20, kMemoryOfRank = 64 << 10, kFreeRequest = 4 << 10;

  /// `preferred`: a loopback endpoint whose port is used if it is free. Throws IoError.
  StoreServer(EventLoop& loop, const Endpoint& preferred);
  ~StoreServer() { drop_all(); }
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Starts an empty store for a round of `world_size` ranks.
  void start_round(int64_t world_size);
  /// Closes all connections. New ones wait for the next round.
  void stop();
  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] size_t clients() const { return clients_.size(); }
  [[nodiscard]] size_t memory() const { return memory_.used; }
  [[nodiscard]] const TurnedAway& turned_away() const { return acceptor_.turned_away(); }

 private:
  using ClientId = KeyValueStore::ClientId;
  struct Client {
    Descriptor socket;
    StoreRequestReader requests;
    std::vector<KeyValueStore::Shared> answers;
    size_t sent_answers = 0, sent_bytes = 0;  // whole answers that have been sent, and bytes of the next one
    size_t counted = 0;                       // bytes in memory_.used
    bool validated = false;
  };
  void connected(Descriptor socket);
  void drop_all();
  void handle(ClientId id);
  bool serve(ClientId id, Client& client);
  bool receive(ClientId id, Client& client);
  bool send_some(ClientId id);
  void send_answers();
  void count(Client& client);
  void refuse(ClientId id, const std::string& why);
  void drop(ClientId id);

  EventLoop& loop_;
  StoreMemory memory_;  // before everything that is counted in it
  KeyValueStore store_;
  std::unordered_map<ClientId, Client> clients_;
  std::vector<ClientId> answered_;  // clients with new answers
  ClientId next_ = 1;
  EventLoop::Clock::time_point next_note_;
  LocalAcceptor acceptor_;
  Endpoint endpoint_;
};

}  // namespace bert
