#include "model/state_dict.h"
