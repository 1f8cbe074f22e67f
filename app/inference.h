// <bert/inference.h>: answers of a trained BERT in a program of your own. app/inference/README.md is its page.
#pragma once

#include "app/checkpoint/checkpoint.h"
#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "app/inference/task_predictor.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"
