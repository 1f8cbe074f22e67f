#include "app/http/inflate.h"

#include <zlib.h>

#include <limits>
#include <memory>
#include <new>

#include "app/http/types.h"

namespace bert {

std::string inflated(const std::string& body, int64_t most) {
  constexpr int kGzipOrZlib = MAX_WBITS + 32;  // zlib.h, inflateInit2: the first bytes say which
  constexpr size_t kPartBytes = 64 << 10;
  if (body.size() > std::numeric_limits<uInt>::max()) throw HttpError(413, "the compressed body is too large");
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOrZlib) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, &inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());
  std::string whole, part(kPartBytes, '\0');
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    status = inflate(&stream, Z_NO_FLUSH);
    whole.append(part, 0, part.size() - stream.avail_out);
    if (static_cast<int64_t>(whole.size()) > most)
      throw HttpError(413, "the body has more than " + std::to_string(most) + " bytes, uncompressed");
    if (status == Z_STREAM_END && stream.avail_in > 0) status = inflateReset(&stream);  // gzip may have several members
  }
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  if (status != Z_STREAM_END || stream.avail_in > 0)
    throw HttpError(400, "the compressed body is damaged, cut off, or followed by other bytes");
  return whole;
}

}  // namespace bert
