// The part of the launcher's store that needs LibTorch. It is in libbert.so.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "app/system/libbert.h"

extern "C" void bert_serve_store(int listener, const char* host, int port, char* message, size_t size) {
  std::string error;
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = listener;  // bound to loopback; without this TCPStore listens on every interface
    const c10d::TCPStore store(host, options);
    for (;;) pause();
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  std::strncpy(message, error.substr(0, error.find('\n')).c_str(), size - 1);
}
