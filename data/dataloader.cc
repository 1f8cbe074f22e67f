#include "data/dataloader.h"
