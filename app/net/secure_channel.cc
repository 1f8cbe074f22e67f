#include "app/net/secure_channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "app/net/big_endian.h"
#include "app/system/crypto.h"

namespace bert {
namespace {

constexpr size_t kHeader = 12;
constexpr const char* kIdentity = "bertrun";  // of the key
constexpr const char* kKeyLabel = "bertrun's TLS 1.3 key";
constexpr const char* kNoBertrun = "it is no bertrun, or one of another version, that listens there";

using Context = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

/// Copies the key of `tls`'s channel to `key`. Returns its length, or 0 if there is no room.
unsigned int copy_key(SSL* tls, unsigned char* key, unsigned int room) {
  const auto& of_channel = *static_cast<const std::string*>(SSL_get_app_data(tls));
  if (of_channel.size() > room) return 0;
  std::ranges::copy(of_channel, key);
  return static_cast<unsigned int>(of_channel.size());
}

unsigned int client_key(SSL* tls, const char* /*hint*/, char* identity, unsigned int identity_room, unsigned char* key,
                        unsigned int room) {
  const std::string name = kIdentity;
  if (name.size() >= identity_room) return 0;
  identity[name.copy(identity, name.size())] = '\0';
  return copy_key(tls, key, room);
}

unsigned int server_key(SSL* tls, const char* identity, unsigned char* key, unsigned int room) {
  return identity != nullptr && std::string_view(identity) == kIdentity ? copy_key(tls, key, room) : 0;
}

Context make_context() {
  Context context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  const bool done = context && SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256") == 1 &&
                    SSL_CTX_set_num_tickets(context.get(), 0) == 1;
  if (!done) throw std::runtime_error("OpenSSL has no TLS 1.3 with AES-128-GCM");
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_client_callback(context.get(), client_key);
  SSL_CTX_set_psk_server_callback(context.get(), server_key);
  return context;
}

SSL* make_tls(SecureChannel::Role role, std::string& key) {
  static const Context kContext = make_context();
  SSL* const tls = SSL_new(kContext.get());
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (tls == nullptr || in == nullptr || out == nullptr) throw std::bad_alloc();
  SSL_set_bio(tls, in, out);
  SSL_set_app_data(tls, &key);
  if (role == SecureChannel::Role::kHost) {
    SSL_set_accept_state(tls);
  } else {
    SSL_set_connect_state(tls);
    SSL_set_verify(tls, SSL_VERIFY_PEER, nullptr);  // a certificate is no proof: none is trusted
  }
  return tls;
}

}  // namespace

SecureChannel::SecureChannel(EventLoop& loop, Descriptor socket, Role role, const std::string& token, Events events)
    : loop_(loop),
      socket_(std::move(socket)),
      role_(role),
      events_(std::move(events)),
      key_(hmac_sha256(token, kKeyLabel)),
      tls_(make_tls(role, key_), SSL_free) {
  if (role_ == Role::kHost) {
    peer_ = peer_of(socket_.get());
    state_ = State::kHandshake;
  }
  deadline_ = loop_.after(kHandshake_seconds, [this] {
    close(state_ == State::kConnecting ? "no connection within 5 s" : "no handshake within 5 s");
  });
  loop_.watch(socket_.get(), POLLIN | POLLOUT, [this](short ready_events) { handle(ready_events); });
}

SecureChannel::~SecureChannel() {
  loop_.cancel(deadline_);
  if (first_read_) loop_.cancel(*first_read_);
  if (socket_) loop_.unwatch(socket_.get());
}

void SecureChannel::close(const std::string& why) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  loop_.cancel(deadline_);
  loop_.unwatch(socket_.get());
  socket_.reset();
  in_.clear(), out_.clear();
  in_begin_ = out_begin_ = 0;
  events_.closed(why);
}

void SecureChannel::handle(short events) {
  if (state_ == State::kConnecting) {
    if (const int error = connection_error(socket_.get())) return close(std::strerror(error));
    if ((events & POLLOUT) == 0) return;
    peer_ = peer_of(socket_.get());
    state_ = State::kHandshake;
    shake_hands();
  }
  if (state_ != State::kClosed && (events & POLLOUT) != 0) flush();
  if (state_ != State::kClosed && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_some();
}

void SecureChannel::flush() {
  while (queued() > 0) {
    const ssize_t written = ::send(socket_.get(), out_.data() + out_begin_, queued(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) return close(std::strerror(errno));
    if (written < 0) break;
    out_begin_ += static_cast<size_t>(written);
  }
  if (2 * out_begin_ >= out_.size()) {  // moves the rest rarely enough: the cost stays below that of writing it
    out_.erase(0, out_begin_);
    out_begin_ = 0;
  }
  loop_.set_events(socket_.get(), static_cast<short>(flushed() ? POLLIN : POLLIN | POLLOUT));
  if (congested_ && queued() < kLowWater) {
    congested_ = false;
    if (events_.congested) events_.congested(false);
  }
}

void SecureChannel::read_some() {
  std::array<char, kLargestPayload> buffer;
  const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return close(std::strerror(errno));
  if (got == 0) {
    return close(state_ == State::kHandshake ? "closed in the handshake" : "the other side has closed the connection");
  }
  BIO_write(SSL_get_rbio(tls_.get()), buffer.data(), static_cast<int>(got));
  if (state_ == State::kHandshake) shake_hands();
  if (state_ == State::kReady && !first_read_) read_plain();
}

/// Moves what OpenSSL has to say to the bytes that wait to be sent.
void SecureChannel::take_encrypted() {
  char* data = nullptr;
  BIO* const encrypted = SSL_get_wbio(tls_.get());
  const long size = BIO_get_mem_data(encrypted, &data);
  if (size <= 0) return;
  out_.append(data, static_cast<size_t>(size));
  static_cast<void>(BIO_reset(encrypted));
  loop_.set_events(socket_.get(), POLLIN | POLLOUT);
}

void SecureChannel::shake_hands() {
  ERR_clear_error();
  const int done = SSL_do_handshake(tls_.get());
  take_encrypted();
  if (done != 1 && SSL_get_error(tls_.get(), done) == SSL_ERROR_WANT_READ) return;
  // A handshake with a certificate in place of the key is none: nobody has proved anything.
  if (done != 1 || SSL_session_reused(tls_.get()) != 1) return give_up_handshake();
  become_ready();
}

/// Names the reason of a failed handshake, after the other side has been told.
void SecureChannel::give_up_handshake() {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  ERR_clear_error();
  if (!out_.empty()) static_cast<void>(::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL));
  const bool wrong_proof = reason == SSL_R_BINDER_DOES_NOT_VERIFY ||
                           reason == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC || reason == SSL_R_DIGEST_CHECK_FAILED;
  if (role_ == Role::kHost) return close(wrong_proof ? "wrong token" : "no bertrun's greeting");
  refused_ = reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER || reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR;
  close(refused_ ? "the host has another token" : wrong_proof ? "the host does not know the token" : kNoBertrun);
}

void SecureChannel::become_ready() {
  loop_.cancel(deadline_);
  state_ = State::kReady;
  flush();
  if (state_ != State::kReady) return;
  events_.ready();
  // The owner puts what it defers in `ready` before the first frame.
  first_read_ = loop_.after(0, [this] {
    first_read_.reset();
    if (state_ == State::kReady) read_plain();
  });
}

void SecureChannel::read_plain() {
  std::array<char, kLargestPayload> buffer;
  for (;;) {
    ERR_clear_error();
    const int got = SSL_read(tls_.get(), buffer.data(), static_cast<int>(buffer.size()));
    if (got <= 0) {
      const int error = SSL_get_error(tls_.get(), got);
      if (error == SSL_ERROR_WANT_READ) break;
      return close(error == SSL_ERROR_ZERO_RETURN ? "the other side has closed the connection"
                                                  : "a record with a wrong MAC, or none of TLS");
    }
    in_.append(buffer.data(), static_cast<size_t>(got));
    while (state_ == State::kReady && take_frame()) {
    }
    if (state_ != State::kReady) return;
    in_.erase(0, in_begin_);
    in_begin_ = 0;
  }
}

bool SecureChannel::take_frame() {
  const std::string_view in = std::string_view(in_).substr(in_begin_);
  if (in.size() < kHeader) return false;
  const size_t length = from_big_endian(in.substr(0, 4));
  if (length > kLargestPayload) {
    close("a frame of " + std::to_string(length) + " bytes; at most " + std::to_string(kLargestPayload) +
          " are allowed");
    return false;
  }
  const size_t whole = kHeader + length;
  if (in.size() < whole) return false;
  Frame frame;
  frame.type = static_cast<uint8_t>(in[4]);
  frame.stream = static_cast<uint32_t>(from_big_endian(in.substr(8, 4)));
  frame.payload = in.substr(kHeader, length);
  in_begin_ += whole;
  events_.frame(frame);
  return true;
}

void SecureChannel::send(uint8_t type, uint32_t stream, std::string_view payload) {
  if (state_ != State::kReady) return;
  std::string frame;
  append_big_endian(frame, payload.size(), 4);
  frame.append(1, static_cast<char>(type)).append(3, '\0');
  append_big_endian(frame, stream, 4);
  frame.append(payload);
  if (SSL_write(tls_.get(), frame.data(), static_cast<int>(frame.size())) <= 0)
    throw std::runtime_error("OpenSSL does not encrypt");  // into memory: it has no reason not to
  take_encrypted();
  if (!congested_ && queued() > kHighWater) {
    congested_ = true;
    if (events_.congested) events_.congested(true);
  }
}

}  // namespace bert
