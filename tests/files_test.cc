#include "data/files.h"

#include "tests/testing.h"
