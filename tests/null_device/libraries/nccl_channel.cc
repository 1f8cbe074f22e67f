#include "tests/null_device/libraries/nccl_channel.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace null_device {
namespace {

constexpr const char* kPrefix = "null-device-nccl-";
constexpr size_t kMostLetters = 160;

/// Of a rank whose part of the memory is taken.
enum State : uint32_t { kComes = 1, kIsHere = 2 };

std::string directory() {
  const char* const own = std::getenv("XDG_RUNTIME_DIR");
  return own != nullptr && *own == '/' ? own : "/dev/shm";
}

NcclError system_error(const std::string& what) {
  return {ncclSystemError, "null device: cannot " + what + ": " + std::strerror(errno)};
}

/// A descriptor that is closed at the end, and negative if the file cannot be opened.
class File {
 public:
  explicit File(const std::string& path, int flags = 0)
      : descriptor_(open(path.c_str(), O_RDWR | O_CLOEXEC | flags, kForUser)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  static constexpr mode_t kForUser = 0600;
  const int descriptor_;
};

/// Removes the files of communicators whose ranks are all dead.
void remove_files_without_owner() {
  DIR* const entries = opendir(directory().c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    if (std::strncmp(entry->d_name, kPrefix, std::strlen(kPrefix)) != 0) continue;
    const std::string path = directory() + "/" + entry->d_name;
    const File file(path);
    if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
  closedir(entries);
}

void copy_text(char (&to)[kMostLetters], const std::string& text) {
  const size_t letters = std::min(text.size(), kMostLetters - 1);
  std::memcpy(to, text.data(), letters);
  to[letters] = '\0';
}

}  // namespace

// The memory of the file begins as zeros: the Shared, then a Part for every rank.
struct NcclChannel::Shared {
  alignas(64) std::atomic<uint32_t> changes;  // of any part; a futex
  std::atomic<uint32_t> size;                 // number of ranks, says the first that came
};

struct NcclChannel::Part {
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint64_t> shown;  // rounds whose data the rank has written
  std::atomic<uint64_t> read;   // rounds of which the rank has read all data
  char device[kMostLetters];
  struct Slot {
    char what[kMostLetters];
    alignas(64) char data[kBytesPerRound];
  } slots[2];  // a rank writes a round while others read the one before
};

NcclChannel::NcclChannel(const std::string& id, Member member) : member_(std::move(member)) {
  remove_files_without_owner();
  const std::string path = directory() + "/" + kPrefix + id;
  for (;;) {
    const File file(path, O_CREAT);
    struct stat status {};
    if (file.get() < 0 || flock(file.get(), LOCK_SH) != 0 || fstat(file.get(), &status) != 0)
      throw system_error("open and lock " + path);
    if (status.st_nlink == 0) continue;  // another process has removed it before it was locked
    map(path, file.get());
    join();
    unlink(path.c_str());  // the first rank removes it
    break;
  }
  for (int first = 0; first < member_.size; ++first) {
    for (int second = first + 1; second < member_.size; ++second) {
      if (std::strcmp(part(first).device, part(second).device) != 0) continue;
      throw NcclError{ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(first) + " and rank " +
                                            std::to_string(second) + " both on CUDA device " + part(first).device};
    }
  }
}

void NcclChannel::map(const std::string& path, int descriptor) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  const size_t bytes = sizeof(Shared) + sizeof(Part) * static_cast<size_t>(member_.size);
  errno = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  void* const memory =
      errno == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) throw system_error("map " + std::to_string(bytes) + " bytes of " + path);
  shared_ = std::shared_ptr<Shared>(static_cast<Shared*>(memory), [bytes](Shared* begin) { munmap(begin, bytes); });
}

void NcclChannel::join() {
  static const std::atomic<bool> never{false};
  uint32_t size = 0;
  const auto own_size = static_cast<uint32_t>(member_.size);
  const std::string who = "rank " + std::to_string(member_.rank) + " of " + std::to_string(member_.size);
  if (!shared_->size.compare_exchange_strong(size, own_size) && size != own_size)
    throw NcclError{ncclInvalidArgument, who + " comes to a communicator of " + std::to_string(size) + " ranks"};
  Part& own = part(member_.rank);
  if (own.state.exchange(kComes) != 0) throw NcclError{ncclInvalidUsage, who + " comes twice"};
  copy_text(own.device, member_.device);
  own.state = kIsHere;
  wake();
  await(never, [](const Part& other) { return other.state == kIsHere; });
}

NcclChannel::Part& NcclChannel::part(int rank) const { return reinterpret_cast<Part*>(shared_.get() + 1)[rank]; }

void NcclChannel::wake() {
  shared_->changes.fetch_add(1);
  syscall(SYS_futex, &shared_->changes, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void NcclChannel::abort() {
  aborted_ = true;
  wake();
}

template <class Condition>
bool NcclChannel::await(const std::atomic<bool>& aborted, const Condition& condition) {
  constexpr timespec kLookAgain = {.tv_sec = 0, .tv_nsec = 20'000'000};
  for (;;) {
    const uint32_t before = shared_->changes.load();
    int rank = 0;
    while (rank < member_.size && condition(part(rank))) ++rank;
    if (rank == member_.size) return true;
    if (aborted || aborted_) return false;
    syscall(SYS_futex, &shared_->changes, FUTEX_WAIT, before, &kLookAgain, nullptr, 0);
  }
}

void NcclChannel::expect_same(const std::string& what, size_t slot) const {
  for (int rank = 0; rank < member_.size; ++rank) {
    const char* const other = part(rank).slots[slot].what;
    if (what.compare(0, kMostLetters - 1, other) == 0) continue;
    throw NcclError{ncclInvalidUsage, "rank " + std::to_string(member_.rank) + " calls " + what + ", and rank " +
                                          std::to_string(rank) + " calls " + other};
  }
}

bool NcclChannel::exchange(const std::string& what, const void* data, size_t bytes, const std::atomic<bool>& aborted,
                           const Use& use) {
  constexpr size_t kSlots = 2;
  const uint64_t round = rounds_++;
  const size_t slot = round % kSlots;
  Part& own = part(member_.rank);
  const auto read_before = [&](const Part& other) { return other.read + kSlots > round; };
  if (!await(aborted, read_before)) return false;
  copy_text(own.slots[slot].what, what);
  if (bytes > 0) std::memcpy(own.slots[slot].data, data, bytes);
  own.shown = round + 1;
  wake();
  if (!await(aborted, [&](const Part& other) { return other.shown > round; })) return false;
  expect_same(what, slot);
  std::vector<const void*> of_ranks;
  of_ranks.reserve(static_cast<size_t>(member_.size));
  for (int rank = 0; rank < member_.size; ++rank) of_ranks.push_back(part(rank).slots[slot].data);
  use(of_ranks);
  own.read = round + 1;
  wake();
  return true;
}

}  // namespace null_device
