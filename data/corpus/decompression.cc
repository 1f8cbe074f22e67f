#include "data/corpus/decompression.h"

#include <bzlib.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "data/io/error.h"
#include "data/io/io_errors.h"
#include "data/text/text_input.h"

namespace bert {
namespace {

constexpr size_t kInputBytes = size_t{1} << 18;  // read from a file at a time
constexpr size_t kBeginningBytes = 16;           // the longest mark in data/text/text_input.cc has ten

/// Reason why compressed bytes cannot be unpacked.
struct Damaged {
  std::string reason;
};

/// Unpacks one format. A file may have several parts one after another: members, streams or frames.
class Decoder {
 public:
  struct Progress {
    size_t consumed, produced;
  };

  Decoder() = default;
  virtual ~Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Takes bytes from `input` and puts bytes into `out`. `last` tells that no input follows. Throws Damaged.
  virtual Progress decode(std::string_view input, char* out, size_t bytes, bool last) = 0;
  /// True if the input up to now is whole.
  [[nodiscard]] bool whole() const { return whole_; }

 protected:
  bool whole_ = false;
};

/// Length of a buffer as zlib and bzip2 count it. All buffers here are much smaller than 4 GB.
unsigned length(size_t bytes) { return static_cast<unsigned>(std::min<size_t>(bytes, size_t{1} << 30)); }

/// The loop step of zlib and bzip2, whose streams have the same members.
template <class Stream, class Byte, class Step>
Decoder::Progress advance(Stream& stream, std::string_view input, char* out, size_t bytes, const Step& step) {
  stream.next_in = reinterpret_cast<Byte*>(const_cast<char*>(input.data()));
  stream.avail_in = length(input.size());
  stream.next_out = reinterpret_cast<Byte*>(out);
  stream.avail_out = length(bytes);
  step();
  return {length(input.size()) - stream.avail_in, length(bytes) - stream.avail_out};
}

class GzipDecoder final : public Decoder {
 public:
  GzipDecoder() {
    constexpr int kGzipOnly = 16;  // added to the size of the window: zlib.h, inflateInit2
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecoder() override { inflateEnd(&stream_); }

  Progress decode(std::string_view input, char* out, size_t bytes, bool) override {
    if (whole_ && input.empty()) return {0, 0};
    if (whole_) inflateReset(&stream_);
    whole_ = false;
    return advance<z_stream, Bytef>(stream_, input, out, bytes, [&] {
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_MEM_ERROR) throw std::bad_alloc();
      if (code == Z_NEED_DICT) throw Damaged{"it needs a dictionary"};
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        throw Damaged{stream_.msg != nullptr ? stream_.msg : "no reason given"};
      whole_ = code == Z_STREAM_END;
    });
  }

 private:
  z_stream stream_{};
};

class Bzip2Decoder final : public Decoder {
 public:
  Bzip2Decoder() { begin(); }
  ~Bzip2Decoder() override { BZ2_bzDecompressEnd(&stream_); }

  Progress decode(std::string_view input, char* out, size_t bytes, bool) override {
    if (whole_ && input.empty()) return {0, 0};
    if (whole_) {
      BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    whole_ = false;
    return advance<bz_stream, char>(stream_, input, out, bytes, [&] {
      const int code = BZ2_bzDecompress(&stream_);
      if (code == BZ_MEM_ERROR) throw std::bad_alloc();
      if (code == BZ_DATA_ERROR_MAGIC) throw Damaged{"no bzip2 stream begins here"};
      if (code != BZ_OK && code != BZ_STREAM_END) throw Damaged{"a block is wrong, or its checksum"};
      whole_ = code == BZ_STREAM_END;
    });
  }

 private:
  void begin() {
    stream_ = {};
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
  }

  bz_stream stream_{};
};

class XzDecoder final : public Decoder {
 public:
  XzDecoder() {
    if (lzma_stream_decoder(&stream_, kMostDecoderBytes, LZMA_CONCATENATED) != LZMA_OK) throw std::bad_alloc();
  }
  ~XzDecoder() override { lzma_end(&stream_); }

  Progress decode(std::string_view input, char* out, size_t bytes, bool last) override {
    if (whole_) return {0, 0};
    stream_.next_in = reinterpret_cast<const uint8_t*>(input.data());
    stream_.avail_in = input.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(out);
    stream_.avail_out = bytes;
    const lzma_ret code = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
    whole_ = code == LZMA_STREAM_END;
    if (code != LZMA_OK && code != LZMA_STREAM_END && code != LZMA_BUF_ERROR) throw Damaged{reason(code)};
    return {input.size() - stream_.avail_in, bytes - stream_.avail_out};
  }

 private:
  [[nodiscard]] std::string reason(lzma_ret code) {
    switch (code) {
      case LZMA_MEM_ERROR:
        throw std::bad_alloc();
      case LZMA_MEMLIMIT_ERROR:
        return fmt::format("unpacking takes {} MB of memory, and {} MB are allowed; pack it with xz -9 or less",
                           lzma_memusage(&stream_) >> 20, kMostDecoderBytes >> 20);
      case LZMA_FORMAT_ERROR:
        return "no xz stream begins here";
      case LZMA_OPTIONS_ERROR:
        return "it uses options that liblzma does not know";
      default:
        return "a block is wrong, or its checksum";
    }
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder() : context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
    constexpr int kWindowLog = 27;  // the default of zstd, 128 MB
    static_assert((uint64_t{1} << kWindowLog) <= kMostDecoderBytes);
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kWindowLog);
  }
  ~ZstdDecoder() override { ZSTD_freeDCtx(context_); }

  Progress decode(std::string_view input, char* out, size_t bytes, bool) override {
    if (whole_ && input.empty()) return {0, 0};
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer to{out, bytes, 0};
    const size_t left = ZSTD_decompressStream(context_, &to, &in);
    if (ZSTD_isError(left) != 0) throw Damaged{ZSTD_getErrorName(left)};
    if (in.pos > 0 || to.pos > 0) whole_ = left == 0;
    return {in.pos, to.pos};
  }

 private:
  ZSTD_DCtx* context_;
};

class UnpackedStream final : public ByteStream {
 public:
  UnpackedStream(StoredFile& file, std::string_view format, std::unique_ptr<Decoder> decoder)
      : file_(file), format_(format), decoder_(std::move(decoder)) {}

  size_t read(char* out, size_t bytes) override {
    while (true) {
      if (input_.empty() && !ended_) {
        const size_t got = file_.read(buffer_.data(), buffer_.size());
        input_ = {buffer_.data(), got};
        ended_ = got == 0;
      }
      const Decoder::Progress made = step(out, bytes);
      input_.remove_prefix(made.consumed);
      if (made.produced > 0) return made.produced;
      if (made.consumed > 0 || !ended_) continue;
      if (decoder_->whole()) return 0;
      throw DataError(
          file_.path(), file_.offset(),
          fmt::format("the {} data ends too early: the file is cut off; make or download it again", format_));
    }
  }

 private:
  Decoder::Progress step(char* out, size_t bytes) {
    try {
      return decoder_->decode(input_, out, bytes, ended_);
    } catch (const Damaged& damaged) {
      throw DataError(file_.path(), file_.offset() - static_cast<int64_t>(input_.size()),
                      fmt::format("cannot unpack the {} data from here on: {}", format_, damaged.reason));
    }
  }

  StoredFile& file_;
  const std::string_view format_;
  const std::unique_ptr<Decoder> decoder_;
  std::vector<char> buffer_ = std::vector<char>(kInputBytes);
  std::string_view input_;
  bool ended_ = false;
};

template <class T>
std::unique_ptr<Decoder> make() {
  return std::make_unique<T>();
}

struct Unpacker {
  std::string_view format, suffix;
  std::unique_ptr<Decoder> (*decoder)();
};

constexpr std::array<Unpacker, 4> kUnpackers = {{{"gzip", ".gz", make<GzipDecoder>},
                                                 {"bzip2", ".bz2", make<Bzip2Decoder>},
                                                 {"xz", ".xz", make<XzDecoder>},
                                                 {"zstd", ".zst", make<ZstdDecoder>}}};

/// A file that is not compressed.
class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(StoredFile& file) : file_(file) {}
  size_t read(char* out, size_t bytes) override { return file_.read(out, bytes); }

 private:
  StoredFile& file_;
};

}  // namespace

StoredFile::StoredFile(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)), beginning_(kBeginningBytes, '\0') {
  if (!file_ && errno == ENOENT) throw InputMissing(path_ + ": no such file");
  if (!file_ || fstat(file_.get(), &at_first_) != 0) throw_io_error(path_, "open", errno);
  size_t used = 0;
  while (used < beginning_.size()) {
    const size_t got = read_more(beginning_.data() + used, beginning_.size() - used);
    if (got == 0) break;
    used += got;
  }
  beginning_.resize(used);
}

size_t StoredFile::read_more(char* out, size_t bytes) {
  while (true) {
    const ssize_t got = ::read(file_.get(), out, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error(path_, "read", errno);
    return static_cast<size_t>(got);
  }
}

size_t StoredFile::read(char* out, size_t bytes) {
  size_t got = 0;
  if (offset_ < static_cast<int64_t>(beginning_.size())) {
    const std::string_view rest = beginning().substr(static_cast<size_t>(offset_));
    got = std::min(bytes, rest.size());
    std::memcpy(out, rest.data(), got);
  } else {
    got = read_more(out, bytes);
  }
  if (got == 0) check_unchanged();
  offset_ += static_cast<int64_t>(got);
  return got;
}

void StoredFile::seek(int64_t offset) {
  // read() takes the first bytes from beginning_, and the rest from the descriptor.
  const auto from = std::max(offset, static_cast<int64_t>(beginning_.size()));
  if (lseek(file_.get(), from, SEEK_SET) < 0) throw_io_error(path_, "seek", errno);
  offset_ = offset;
}

void StoredFile::check_unchanged() const {
  struct stat now {};
  if (fstat(file_.get(), &now) != 0) throw_io_error(path_, "read", errno);
  if (!S_ISREG(now.st_mode)) return;
  if (now.st_size == at_first_.st_size && now.st_mtim.tv_sec == at_first_.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == at_first_.st_mtim.tv_nsec)
    return;
  throw DataError(path_, offset_,
                  fmt::format("the file changed while it was read: it had {} bytes, and has {}; wait until it is whole",
                              at_first_.st_size, now.st_size));
}

std::unique_ptr<ByteStream> unpacked(StoredFile& file) {
  const std::string_view format = packed_format(file.beginning());
  for (const Unpacker& unpacker : kUnpackers) {
    if (format == unpacker.format) return std::make_unique<UnpackedStream>(file, format, unpacker.decoder());
    if (format.empty() && file.path().ends_with(unpacker.suffix)) {
      throw DataError(fmt::format("{}: is named {}, and does not begin as {}: it is damaged, or wants another name",
                                  file.path(), unpacker.suffix, unpacker.format));
    }
  }
  if (!format.empty()) throw DataError(fmt::format("{}: is {}; unpack it first", file.path(), format));
  return std::make_unique<PlainStream>(file);
}

std::string_view without_packed_suffix(std::string_view name) {
  for (const Unpacker& unpacker : kUnpackers) {
    if (name.ends_with(unpacker.suffix)) return name.substr(0, name.size() - unpacker.suffix.size());
  }
  return name;
}

}  // namespace bert
