#include "app/launcher/store/store_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "app/system/console.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr size_t kReceiveBytes = 64 << 10;  // most bytes received at once
constexpr size_t kMostParts = 64;           // most answers sent at once
constexpr size_t kIdleClientBytes = 1024;   // a client with its watch, its place in the map and an empty buffer
constexpr std::chrono::seconds kNoteInterval(10);
constexpr size_t kShownKey = 64;  // bytes of a key in a line

double mebibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Descriptor listen_near(const Endpoint& preferred) {
  Descriptor listener = try_listen_on(preferred);
  return listener ? std::move(listener) : listen_on({preferred.host, 0});
}

/// The RANK in a process's environment as it was started; "" if it has none.
std::string rank_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string environment = '\0' + std::string{std::istreambuf_iterator<char>(file), {}};
  const std::string name = std::string(1, '\0') + "RANK=";
  const size_t at = environment.find(name);
  return at == std::string::npos ? "" : environment.c_str() + at + name.size();
}

/// The process at the other end of a connection.
std::string describe_peer(const PeerFinder& peers, int connection) {
  SocketProcess process;
  try {
    process = process_of_socket(peers.owner_of_peer(connection).inode);
  } catch (const IoError&) {  // the kernel does not tell
  }
  if (process.pid == getpid()) return "a rank on another machine";
  if (process.pid == 0) return "an unknown process";
  const std::string rank = rank_of(process.pid);
  return (rank.empty() ? "" : "rank " + rank + ", ") + to_string(process);
}

}  // namespace

StoreServer::StoreServer(EventLoop& loop, const Endpoint& preferred)
    : loop_(loop),
      store_(memory_,
             [this](ClientId id, KeyValueStore::Shared part) {
               Client& client = clients_.at(id);
               if (client.answers.empty()) answered_.push_back(id);
               client.answers.push_back(std::move(part));
             }),
      acceptor_(loop, listen_near(preferred), [this](Descriptor socket) { connected(std::move(socket)); }),
      endpoint_{preferred.host, acceptor_.port()} {
  acceptor_.set_open(false);
}

void StoreServer::start_round(int64_t world_size) {
  stop();
  memory_.limit = kMemory + kMemoryOfRank * static_cast<size_t>(world_size);
  acceptor_.set_open(true);
}

void StoreServer::stop() {
  acceptor_.set_open(false);
  drop_all();
  store_.clear();
}

void StoreServer::drop_all() {
  while (!clients_.empty()) drop(clients_.begin()->first);
}

void StoreServer::connected(Descriptor socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const ClientId id = next_++;
  Client& client = clients_[id];
  client.socket = std::move(socket);
  loop_.watch(client.socket.get(), POLLIN, [this, id](short) { handle(id); });
  count(client);
}

void StoreServer::drop(ClientId id) {
  const auto found = clients_.find(id);
  loop_.unwatch(found->second.socket.get());
  store_.forget(id);
  std::erase(answered_, id);
  memory_.used -= found->second.counted;
  clients_.erase(found);
}

void StoreServer::count(Client& client) {
  memory_.used -= client.counted;
  client.counted = kIdleClientBytes + client.requests.bytes() + client.answers.capacity() * sizeof client.answers[0];
  memory_.used += client.counted;
}

void StoreServer::handle(ClientId id) {
  if (!send_some(id)) return;
  Client& client = clients_.at(id);
  try {
    if (serve(id, client) && client.answers.empty() && receive(id, client)) serve(id, client);
  } catch (const DataError& error) {
    refuse(id, error.what());
  } catch (const StoreFull& full) {
    const auto [key, size] = store_.longest();
    refuse(id, fmt::format("its request needs {:.1f} MiB of memory; {:.1f} MiB are in use for keys, values and "
                           "answers, and the limit is {:.1f} MiB; the longest value, of key {}, has {:.1f} MiB",
                           mebibytes(full.needed), mebibytes(memory_.used), mebibytes(memory_.limit),
                           key.substr(0, kShownKey), mebibytes(size)));
  }
}

/// Executes requests until an answer waits to be sent, or bytes are missing. Returns false if the client is gone.
bool StoreServer::serve(ClientId id, Client& client) {
  while (client.answers.empty() && client.requests.next()) {
    const StoreRequestReader& request = client.requests;
    if (client.validated) {
      store_.execute(id, request);
      client.requests.done();
      send_answers();
      if (!clients_.contains(id)) return false;
    } else if (request.query() == StoreQuery::kValidate && request.number<uint32_t>(0) == kStoreMagic) {
      client.validated = true;
      client.requests.done();
    } else {
      throw DataError("its first request is not that of a c10d::TCPStore");
    }
  }
  count(client);
  return true;
}

/// Returns true if bytes have come.
bool StoreServer::receive(ClientId id, Client& client) {
  std::array<char, kReceiveBytes> buffer;
  const ssize_t got = recv(client.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    drop(id);
    return false;
  }
  const auto bytes = static_cast<size_t>(got);
  const size_t growth = client.requests.growth(bytes);
  if (client.requests.bytes() + bytes > kFreeRequest && !memory_.fits(growth)) throw StoreFull(growth);
  client.requests.append({buffer.data(), bytes});
  return true;
}

/// Sends the answers to all clients that have new ones.
void StoreServer::send_answers() {
  for (const ClientId id : std::exchange(answered_, {})) send_some(id);
}

/// Sends what the socket takes of the client's answers. Returns false if the client is gone.
bool StoreServer::send_some(ClientId id) {
  Client& client = clients_.at(id);
  while (client.sent_answers < client.answers.size()) {
    std::array<iovec, kMostParts> parts;
    const size_t number = std::min(kMostParts, client.answers.size() - client.sent_answers);
    for (size_t i = 0; i < number; ++i) {
      const std::string& text = client.answers[client.sent_answers + i]->text();
      const size_t skipped = i == 0 ? client.sent_bytes : 0;
      parts[i] = {const_cast<char*>(text.data() + skipped), text.size() - skipped};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = number;
    const ssize_t sent = sendmsg(client.socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) {
      drop(id);
      return false;
    }
    client.sent_bytes += static_cast<size_t>(sent);
    while (client.sent_answers < client.answers.size() &&
           client.sent_bytes >= client.answers[client.sent_answers]->text().size()) {
      client.sent_bytes -= client.answers[client.sent_answers]->text().size();
      client.answers[client.sent_answers++].reset();
    }
  }
  if (client.sent_answers == client.answers.size()) {
    client.answers.clear();
    client.answers.shrink_to_fit();
    client.sent_answers = 0;
  }
  loop_.set_events(client.socket.get(), client.answers.empty() ? POLLIN : POLLOUT);
  count(client);
  return true;
}

void StoreServer::refuse(ClientId id, const std::string& why) {
  const auto now = EventLoop::Clock::now();
  if (now >= next_note_) {
    next_note_ = now + kNoteInterval;
    say("the store closes a connection of " + describe_peer(acceptor_.peers(), clients_.at(id).socket.get()) + ": " +
        why);
  }
  drop(id);
}

}  // namespace bert
