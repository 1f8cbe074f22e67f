#include "cuda_ext/ops.h"
