#include "data/examples/packed_examples.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdlib>

#include "data/io/error.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

// A masked token is the distance from the one before it, and its fate in the low 2 bits; kOther is followed by the id.
enum Fate : uint64_t { kMask = 0, kSame = 1, kOther = 2 };
constexpr uint64_t kFateBits = 2, kFateMask = 3;

/// Appends a number of 7 bits a byte; the high bit says that more follow.
void put(std::vector<uint8_t>& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<uint8_t>(number | 0x80));
  bytes.push_back(static_cast<uint8_t>(number));
}

}  // namespace

PackedExamples::PackedExamples(const std::string& scratch_directory) {
  if (!scratch_directory.empty()) on_disk_.emplace(scratch_directory);
}

void PackedExamples::add(const SegmentPair& pair, std::span<const MaskedToken> masked, std::span<const int32_t> ids,
                         int32_t mask_id) {
  std::vector<uint8_t>& bytes = scratch_;
  bytes.clear();
  put(bytes, pair.a_begin);
  put(bytes, pair.a_end - pair.a_begin);
  put(bytes, static_cast<uint64_t>(pair.has_b) | static_cast<uint64_t>(pair.label) << 1);
  if (pair.has_b) {
    put(bytes, pair.b_begin);
    put(bytes, pair.b_end - pair.b_begin);
  }
  put(bytes, masked.size());
  int32_t last = -1;
  for (const auto& [position, id] : masked) {
    const int32_t now = ids[static_cast<size_t>(position)];
    const Fate fate = now == mask_id ? kMask : now == id ? kSame : kOther;
    put(bytes, static_cast<uint64_t>(position - last) << kFateBits | fate);
    if (fate == kOther) put(bytes, static_cast<uint64_t>(now));
    last = position;
  }
  assert(bytes.size() <= kBlockBytes);
  if (used_ + bytes.size() > kBlockBytes) {
    full_blocks_ += !blocks_.empty();
    if (on_disk_ && !blocks_.empty()) {
      on_disk_->append(blocks_.back().get(), kBlockBytes);
    } else {
      blocks_.push_back(std::make_unique_for_overwrite<uint8_t[]>(kBlockBytes));
    }
    used_ = 0;
  }
  places_.push_back(full_blocks_ << kBlockBits | used_);
  std::ranges::copy(bytes, blocks_.back().get() + used_);
  used_ += bytes.size();
}

PackedExamples::Reader::Reader(const PackedExamples& examples, size_t i) {
  const uint64_t place = examples.places_[i], block = place >> kBlockBits;
  if (examples.on_disk_ && block < examples.full_blocks_) {
    file_ = &*examples.on_disk_;
    file_offset_ = static_cast<int64_t>(place);
  } else {
    const uint8_t* const start = examples.blocks_[examples.on_disk_ ? 0 : block].get();
    at_ = start + (place & (kBlockBytes - 1));
    end_ = start + kBlockBytes;
  }
  pair_.a_begin = number();
  pair_.a_end = pair_.a_begin + number();
  const uint64_t flags = number();
  pair_.has_b = (flags & 1) != 0;
  pair_.label = (flags & 2) != 0;
  if (pair_.has_b) {
    pair_.b_begin = number();
    pair_.b_end = pair_.b_begin + number();
  }
  masked_ = number();
}

TokenReplacement PackedExamples::Reader::next_masked(std::span<const int32_t> ids, int32_t mask_id) {
  const uint64_t code = number();
  position_ += static_cast<int32_t>(code >> kFateBits);
  --masked_;
  switch (code & kFateMask) {
    case kMask:
      return {position_, mask_id};
    case kSame:
      return {position_, ids[static_cast<size_t>(position_)]};
    default:
      return {position_, static_cast<int32_t>(number())};
  }
}

uint64_t PackedExamples::Reader::number() {
  uint64_t result = 0;
  for (int shift = 0;; shift += 7) {
    if (at_ == end_) read_more();
    const uint8_t byte = *at_++;
    result |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return result;
  }
}

void PackedExamples::Reader::read_more() {
  const size_t got = file_->read(file_offset_, buffer_.data(), buffer_.size());
  file_offset_ += static_cast<int64_t>(got);
  at_ = buffer_.data();
  end_ = at_ + got;
  if (got == 0) throw IoError("the temporary file of the examples has been cut off");
}

ScratchFile::ScratchFile(const std::string& directory)
    : directory_(directory), file_(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
  if (file_) return;
  std::string name = directory + "/scratch-XXXXXX";  // the file system has no files without names
  file_ = Descriptor(mkostemp(name.data(), O_CLOEXEC));
  if (!file_) throw_io_error(directory, "create a file in", errno);
  unlink(name.c_str());
}

void ScratchFile::append(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(file_.get(), from, bytes, size_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_io_error(directory_, "write a file in", written < 0 ? errno : EIO, bytes);
    from += written;
    size_ += written;
    bytes -= static_cast<size_t>(written);
  }
}

size_t ScratchFile::read(int64_t offset, void* to, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(file_.get(), static_cast<char*>(to) + done, bytes - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error(directory_, "read a file in", errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace bert
