// The secret that the agents of one job share.
#pragma once

#include <string>
#include <string_view>

#include "app/launcher/settings/options.h"
#include "data/io/descriptor.h"

namespace bert {

inline constexpr const char* kTokenVariable = "BERTRUN_TOKEN";  // 64 hexadecimal digits
// Path of a file with these digits. It is the user's own and closed to others, or root's and readable only for root and
// a group of the user.
inline constexpr const char* kTokenFileVariable = "BERTRUN_TOKEN_FILE";

/// Removes both variables from this process' environment, also from /proc/<pid>/environ.
void forget_token();

/// The job's token, 32 bytes. It comes from BERTRUN_TOKEN, or from the file that BERTRUN_TOKEN_FILE names. If the
/// endpoint is a loopback address, it may also come from a file in the user's runtime directory ($XDG_RUNTIME_DIR if
/// that is the user's own directory, else one in /tmp, which a stranger cannot occupy). That file is named after port
/// and rendezvous id, and the first agent makes it. Every agent locks the file while it lives, and the last agent
/// removes it. A file without a lock is left from an old job and is made anew.
class JobToken {
 public:
  JobToken() = default;  // for a job that needs no token
  /// Removes the variables from the environment. Throws RefusedError if there is no token, or if strangers can read or
  /// replace the file; DataError if the content is no token; InputMissing, IoError.
  explicit JobToken(const RendezvousConfig& config);
  ~JobToken();
  JobToken(JobToken&&) = default;
  JobToken& operator=(JobToken&&) = delete;
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_, path_;
  Descriptor file_;  // locked; none if the token was given
};

}  // namespace bert
