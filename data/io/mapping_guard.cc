#include "data/io/mapping_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

namespace bert {

/// Entries of a list that is never freed: the signal handler may read it at any time.
struct MappingGuard::Place {
  std::atomic<uintptr_t> begin{0}, end{0};  // both 0: free
  Place* next = nullptr;
};

namespace {

std::atomic<MappingGuard::Place*> places{nullptr};
struct sigaction action_before {};

/// Lets zeros stand for the bytes from the page of the fault to the end of its mapping.
void on_bus_error(int, siginfo_t* info, void*) {
  static const auto page_bytes = static_cast<uintptr_t>(getpagesize());
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const MappingGuard::Place* place = places; place != nullptr; place = place->next) {
    const uintptr_t begin = place->begin, end = place->end;
    if (address < begin || address >= end) continue;
    const int error = errno;
    const uintptr_t into_page = address % page_bytes;
    char* page = static_cast<char*>(info->si_addr) - into_page;
    const void* zeros =
        mmap(page, end - (address - into_page), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = error;
    if (zeros != MAP_FAILED) return;
  }
  sigaction(SIGBUS, &action_before, nullptr);  // the access is repeated, and faults again
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGBUS, &action, &action_before);
}

}  // namespace

MappingGuard::MappingGuard(const void* data, size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, install);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  place_ = places;
  while (place_ != nullptr && place_->end != 0) place_ = place_->next;
  if (place_ == nullptr) {
    place_ = new Place;
    place_->next = places;
    places = place_;
  }
  place_->begin = reinterpret_cast<uintptr_t>(data);
  place_->end = reinterpret_cast<uintptr_t>(data) + bytes;
}

MappingGuard::~MappingGuard() {
  if (place_ == nullptr) return;
  place_->begin = 0;
  place_->end = 0;
}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
  std::swap(place_, other.place_);
  return *this;
}

}  // namespace bert
