#include "app/system/machine/descriptor_limit.h"

#include <sys/resource.h>

namespace bert {

uint64_t raise_descriptor_limit() {
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  return descriptors.rlim_max;
}

}  // namespace bert
