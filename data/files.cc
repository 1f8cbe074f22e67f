#include "data/files.h"
