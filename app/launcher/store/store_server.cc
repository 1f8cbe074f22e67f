#include "app/launcher/store/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "app/system/console.h"
#include "app/system/libbert.h"
#include "app/system/signals.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// Called in the child. Keeps the standard streams and the listener, and becomes the store.
[[noreturn]] void become_store(int listener, int errors, const Endpoint& endpoint, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  prctl(PR_SET_NAME, "bertrun-store");
  setsid();  // a terminal's Ctrl-C must reach only the launcher, which ends the store last
  // Keeps descriptors 0, 1, 2, the listener and `errors`, and closes all others, also network connections.
  const int kept_listener = fcntl(listener, F_DUPFD, 100), kept_errors = fcntl(errors, F_DUPFD, 100);
  close_range(3, 99, 0);
  dup2(kept_listener, 3);
  dup2(kept_errors, 4);
  close_range(5, ~0U, 0);
  LoadProblem problem;
  const auto serve = reinterpret_cast<BertServeStore>(torch_library_symbol(kBertServeStoreSymbol, problem));
  std::array<char, 512> message{};
  std::string error;
  if (serve != nullptr) {
    serve(3, endpoint.host.c_str(), static_cast<int>(endpoint.port), message.data(), message.size());
    error = message.data();
  } else {
    error = "cannot load LibTorch: " + problem.reason + "; " + problem.remedy;
  }
  [[maybe_unused]] const ssize_t written = write(4, error.data(), error.size());
  _exit(1);
}

}  // namespace

StoreServer::StoreServer(EventLoop& loop, const Endpoint& preferred, std::function<void(const std::string&)> failed)
    : loop_(loop), failed_(std::move(failed)), endpoint_(preferred) {
  listener_ = try_listen_on(preferred);
  if (!listener_) listener_ = listen_on({preferred.host, 0});
  endpoint_.port = port_of(listener_.get());
}

StoreServer::~StoreServer() { stop(); }

void StoreServer::start_round(int64_t world_size) {
  stop();
  error_.clear();
  if (world_size > 1) {
    serve();
  } else {
    loop_.watch(listener_.get(), POLLIN, [this](short) { serve(); });
  }
}

void StoreServer::serve() {
  loop_.unwatch(listener_.get());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw IoError(std::string("pipe: ") + std::strerror(errno));
  errors_ = Descriptor(ends[0]);
  const pid_t parent = getpid();
  server_ = fork();
  if (server_ == 0) become_store(listener_.get(), ends[1], endpoint_, parent);
  close(ends[1]);
  if (server_ < 0) throw IoError(std::string("fork: ") + std::strerror(errno));
}

void StoreServer::reap() {
  int status = 0;
  if (server_ <= 0 || waitpid(server_, &status, WNOHANG) != server_) return;
  server_ = 0;
  std::array<char, 1024> buffer{};
  const ssize_t got = read(errors_.get(), buffer.data(), buffer.size());
  error_ = got > 0 ? std::string(buffer.data(), static_cast<size_t>(got)) : "the process that serves it has died";
  if (WIFSIGNALED(status)) {  // ranks that do not need the store now go on, so that they can still save a checkpoint
    error_ += ", killed by " + signal_name(WTERMSIG(status));
    say("note: the store of this job is lost: " + error_ + "; ranks that ask it fail");
  }
  // A program that needs no store runs on. A later connection is reported as a failure.
  loop_.watch(listener_.get(), POLLIN, [this](short) {
    loop_.unwatch(listener_.get());
    failed_("the store of this job cannot be served: " + error_);
  });
}

void StoreServer::stop() {
  loop_.unwatch(listener_.get());
  if (server_ <= 0) return;
  kill(server_, SIGKILL);
  waitpid(server_, nullptr, 0);
  server_ = 0;
}

}  // namespace bert
