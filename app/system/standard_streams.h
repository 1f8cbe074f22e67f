// Protection for standard streams that the caller has closed.
#pragma once

namespace bert {

/// Opens /dev/null on each closed descriptor of 0, 1 and 2, so that no other file gets its number. Reading or writing
/// the stream still fails. Must be called first.
void occupy_standard_streams();

}  // namespace bert
