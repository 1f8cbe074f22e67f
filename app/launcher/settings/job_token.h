// The secret that the agents of one job share.
#pragma once

#include <string>
#include <string_view>

#include "app/launcher/settings/options.h"
#include "data/io/descriptor.h"

namespace bert {

inline constexpr const char* kTokenVariable = "BERTRUN_TOKEN";           // 64 hexadecimal digits
inline constexpr const char* kTokenFileVariable = "BERTRUN_TOKEN_FILE";  // a file of them, readable by its owner only

/// Takes both variables out of this process' environment, also out of what /proc shows of it.
void forget_token();

/// The job's token, 32 bytes: from BERTRUN_TOKEN; from the file that BERTRUN_TOKEN_FILE names; or, when the endpoint is
/// a loopback address, from a file in the user's runtime directory ($XDG_RUNTIME_DIR where that is a directory, else
/// /tmp/bertrun-<uid>), named after port and rendezvous id and made by whichever agent comes first. Every agent locks
/// that file as long as it lives: the last one removes it, and a file that nobody has locked is another job's of the
/// past, and is made anew.
class JobToken {
 public:
  JobToken() = default;  // of a job that needs none
  /// Forgets the variables. Throws RefusedError when there is none, or when others can read or replace the file;
  /// DataError when it is no token; InputMissing, IoError.
  explicit JobToken(const RendezvousConfig& config);
  ~JobToken();
  JobToken(JobToken&&) = default;
  JobToken& operator=(JobToken&&) = delete;
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_, path_;
  Descriptor file_;  // locked; none when the token was given
};

}  // namespace bert
