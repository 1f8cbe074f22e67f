// The three standard streams, where the caller has closed one.
#pragma once

namespace bert {

/// Puts something on each of the descriptors 0, 1 and 2 that is closed, so that no other file gets its number. Reading
/// or writing there fails as before. To be called first.
void occupy_standard_streams();

}  // namespace bert
