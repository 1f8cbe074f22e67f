#include "data/io/mapping_guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

#include "data/io/error.h"

namespace bert {

/// Entries of a list that is never freed: the signal handler may read it at any time.
struct MappingGuard::Place {
  std::atomic<uintptr_t> begin{0}, end{0};  // both 0: free
  std::atomic<uintptr_t> cut{0};            // the first address that read zeros; 0: none
  Place* next = nullptr;
  std::string path;  // the rest is not for the handler
  struct stat file {};

  void expect_whole() const;
};

namespace {

std::atomic<MappingGuard::Place*> places{nullptr};
struct sigaction action_before {};

/// Lets zeros stand for the bytes from the page of the fault to the end of its mapping.
void on_bus_error(int, siginfo_t* info, void*) {
  static const auto page_bytes = static_cast<uintptr_t>(getpagesize());
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (MappingGuard::Place* place = places; place != nullptr; place = place->next) {
    const uintptr_t begin = place->begin, end = place->end;
    if (address < begin || address >= end) continue;
    const int error = errno;
    const uintptr_t into_page = address % page_bytes;
    char* page = static_cast<char*>(info->si_addr) - into_page;
    const void* zeros =
        mmap(page, end - (address - into_page), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = error;
    if (zeros == MAP_FAILED) continue;
    uintptr_t before = place->cut;
    while ((before == 0 || address < before) && !place->cut.compare_exchange_weak(before, address)) {
    }
    return;
  }
  sigaction(SIGBUS, &action_before, nullptr);  // the access is repeated, and faults again
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGBUS, &action, &action_before);
}

/// Protects the list against other threads. The handler does without.
std::mutex& list_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void MappingGuard::Place::expect_whole() const {
  const uintptr_t first_zero = cut;
  struct stat now {};
  const bool same = stat(path.c_str(), &now) == 0 && now.st_dev == file.st_dev && now.st_ino == file.st_ino;
  const bool shorter = same && now.st_size < file.st_size;
  if (first_zero == 0 && !shorter) return;
  const std::string to = shorter ? fmt::format(" to {} of its {} bytes", now.st_size, file.st_size) : "";
  throw DataError(path, shorter ? now.st_size : static_cast<int64_t>(first_zero - begin),
                  "the file was cut" + to + " while it was read. Make or copy it again.");
}

MappingGuard::MappingGuard(std::string path, const struct stat& file, const void* data) {
  static std::once_flag installed;
  std::call_once(installed, install);
  const std::lock_guard lock(list_mutex());
  place_ = places;
  while (place_ != nullptr && place_->end != 0) place_ = place_->next;
  if (place_ == nullptr) {
    place_ = new Place;
    place_->next = places;
    places = place_;
  }
  place_->path = std::move(path);
  place_->file = file;
  place_->cut = 0;
  place_->begin = reinterpret_cast<uintptr_t>(data);
  place_->end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(file.st_size);
}

MappingGuard::~MappingGuard() {
  if (place_ == nullptr) return;
  const std::lock_guard lock(list_mutex());
  place_->end = 0;  // first: the handler, which takes no lock, then matches nothing
  place_->begin = 0;
}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
  std::swap(place_, other.place_);
  return *this;
}

void MappingGuard::expect_whole() const {
  if (place_ == nullptr) return;
  const std::lock_guard lock(list_mutex());
  place_->expect_whole();
}

void expect_whole_mapping(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(list_mutex());
  for (const MappingGuard::Place* place = places; place != nullptr; place = place->next) {
    if (wanted >= place->begin && wanted < place->end) return place->expect_whole();
  }
}

}  // namespace bert
