// Replaces the hash functions of libxxhash and zlib in bert_mutations_without_checksums, so that checksums show no
// damage.
#include <xxhash.h>
#include <zlib.h>

extern "C" {

XXH64_hash_t XXH3_64bits(const void*, size_t) { return 0; }
XXH128_hash_t XXH3_128bits(const void*, size_t) { return {}; }
XXH128_hash_t XXH3_128bits_digest(const XXH3_state_t*) { return {}; }
uLong crc32_z(uLong, const Bytef*, z_size_t) { return 0; }

}  // extern "C"
