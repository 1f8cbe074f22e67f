#include "app/system/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace bert {

void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this stream's. The access mode is the opposite of the stream's
    // use.
    [[maybe_unused]] const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace bert
