// Bytes as gzip, bzip2, xz and zstd make them from a text, each with checksums.
#pragma once

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace bert::testing {

inline constexpr size_t kPackedBytes = size_t{1} << 20;  // room for the packed texts of tests

inline void check_packed(bool packed) {
  if (!packed) throw std::runtime_error("cannot pack");
}

inline std::string gzip_of(std::string_view text) {
  std::string out(kPackedBytes, '\0');
  z_stream stream{};
  constexpr int kMemory = 8, kGzip = 16;  // zlib.h: the default, and what is added to the window for a gzip header
  check_packed(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, kMemory, Z_DEFAULT_STRATEGY) ==
               Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(stream.total_out);
  deflateEnd(&stream);
  check_packed(whole);
  return out;
}

/// One stream with blocks of `level` * 100,000 bytes.
inline std::string bzip2(std::string_view text, int level = 9) {
  auto bytes = static_cast<unsigned>(text.size() + text.size() / 100 + 600);  // the bound of bzlib.h
  std::string out(bytes, '\0');
  check_packed(BZ2_bzBuffToBuffCompress(out.data(), &bytes, const_cast<char*>(text.data()),
                                        static_cast<unsigned>(text.size()), level, 0, 0) == BZ_OK);
  out.resize(bytes);
  return out;
}

inline std::string bzip2_of(std::string_view text) { return bzip2(text); }

inline std::string xz_of(std::string_view text) {
  std::string out(kPackedBytes, '\0');
  size_t bytes = 0;
  check_packed(lzma_easy_buffer_encode(LZMA_PRESET_DEFAULT, LZMA_CHECK_CRC64, nullptr,
                                       reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                                       reinterpret_cast<uint8_t*>(out.data()), &bytes, out.size()) == LZMA_OK);
  out.resize(bytes);
  return out;
}

inline std::string zstd_of(std::string_view text) {
  std::string out(kPackedBytes, '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  const size_t bytes = ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  check_packed(ZSTD_isError(bytes) == 0);
  out.resize(bytes);
  return out;
}

}  // namespace bert::testing
