#include "data/io/gzip.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "data/io/descriptor.h"
#include "data/io/error.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // bytes of one read or write
constexpr int kGzipWindow = 15 + 16;              // zlib.h: the largest window, and gzip around it

uInt as_uint(size_t bytes) { return static_cast<uInt>(std::min<size_t>(bytes, std::numeric_limits<uInt>::max())); }

}  // namespace

// ---- reading ----

struct SequentialFile::Impl {
  std::string path;
  Descriptor descriptor;
  int64_t size = 0;      // of the file
  int64_t loaded = 0;    // bytes of the file that were in the buffer
  int64_t position = 0;  // bytes of content
  std::vector<char> buffer = std::vector<char>(kBufferBytes);
  size_t begin = 0, end = 0;  // what is left in the buffer
  bool packed = false, in_member = false;
  z_stream stream{};

  ~Impl() {
    if (packed) inflateEnd(&stream);
  }

  /// Fills the empty buffer. Returns false at the end of the file.
  bool fill() {
    begin = end = 0;
    ssize_t got = 0;
    do {
      got = ::read(descriptor.get(), buffer.data(), buffer.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) throw_io_error(path, "read", errno);
    end = static_cast<size_t>(got);
    loaded += got;
    return got > 0;
  }

  size_t read_plain(char* data, size_t bytes) {
    const size_t count = std::min(bytes, end - begin);
    std::memcpy(data, buffer.data() + begin, count);
    begin += count;
    return count;
  }

  size_t read_packed(char* data, size_t bytes) {
    if (!in_member) {  // another member begins
      inflateReset(&stream);
      in_member = true;
    }
    stream.next_in = reinterpret_cast<Bytef*>(buffer.data() + begin);
    stream.avail_in = as_uint(end - begin);
    stream.next_out = reinterpret_cast<Bytef*>(data);
    stream.avail_out = as_uint(bytes);
    const uInt room = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    begin = end - stream.avail_in;
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status == Z_STREAM_END) in_member = false;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      throw DataError(path, loaded - static_cast<int64_t>(end - begin),
                      fmt::format("damaged gzip ({}): copy or make the file again.",
                                  stream.msg != nullptr ? stream.msg : "no message"));
    }
    return room - stream.avail_out;
  }
};

SequentialFile::SequentialFile(const std::string& path) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->descriptor = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!impl_->descriptor && (errno == ENOENT || errno == ENOTDIR)) throw InputMissing(path + ": no such file");
  struct stat status {};
  if (!impl_->descriptor || fstat(impl_->descriptor.get(), &status) != 0) throw_io_error(path, "open", errno);
  impl_->size = status.st_size;
  impl_->fill();
  const std::vector<char>& start = impl_->buffer;
  if (impl_->end >= 2 && start[0] == '\x1f' && start[1] == '\x8b') {
    if (inflateInit2(&impl_->stream, kGzipWindow) != Z_OK) throw std::bad_alloc();
    impl_->packed = impl_->in_member = true;
  }
}

SequentialFile::~SequentialFile() = default;

size_t SequentialFile::read(void* data, size_t bytes) {
  Impl& file = *impl_;
  size_t done = 0;
  while (done < bytes) {
    if (file.begin == file.end && !file.fill()) {
      if (file.packed && file.in_member) {
        throw DataError(file.path, file.loaded, "the gzip file is cut off: copy or make it again.");
      }
      break;
    }
    char* const to = static_cast<char*>(data) + done;
    const size_t got = file.packed ? file.read_packed(to, bytes - done) : file.read_plain(to, bytes - done);
    done += got;
    file.position += static_cast<int64_t>(got);
  }
  return done;
}

int64_t SequentialFile::position() const { return impl_->position; }

bool SequentialFile::packed() const { return impl_->packed; }

double SequentialFile::share() const {
  const auto read = static_cast<double>(impl_->loaded - static_cast<int64_t>(impl_->end - impl_->begin));
  return impl_->size > 0 ? std::min(1.0, read / static_cast<double>(impl_->size)) : 1.0;
}

// ---- writing ----

struct SequentialOutput::Packer {
  z_stream stream{};
  std::vector<char> buffer = std::vector<char>(kBufferBytes);

  Packer() {
    constexpr int kMemoryLevel = 8;  // zlib's default
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~Packer() { deflateEnd(&stream); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  void write(AtomicFile& file, std::string_view bytes, int flush) {
    do {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream.avail_in = as_uint(bytes.size());
      bytes.remove_prefix(stream.avail_in);
      do {
        stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
        stream.avail_out = as_uint(buffer.size());
        deflate(&stream, bytes.empty() ? flush : Z_NO_FLUSH);
        file.write(buffer.data(), buffer.size() - stream.avail_out);
      } while (stream.avail_out == 0);
    } while (!bytes.empty());
  }
};

SequentialOutput::SequentialOutput(const std::string& path, bool pack)
    : file_(path), packer_(pack ? std::make_unique<Packer>() : nullptr) {}

SequentialOutput::~SequentialOutput() = default;

void SequentialOutput::write(std::string_view bytes) {
  packer_ != nullptr ? packer_->write(file_, bytes, Z_NO_FLUSH) : file_.write(bytes);
}

void SequentialOutput::commit() {
  if (packer_ != nullptr) packer_->write(file_, {}, Z_FINISH);
  file_.commit();
}

}  // namespace bert
