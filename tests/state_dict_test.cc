#include "model/state_dict.h"

#include "tests/testing.h"
