#include "optim/optimizer.h"
