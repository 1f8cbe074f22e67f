// Activation checkpointing: trade a second forward for the memory of what the first one would have kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace bert {

/// y = function(x), of which backward keeps x alone and runs the function again when it comes to it: under the autocast
/// that was set here, and on CUDA from the generator state that was found here. So the gradients of x and of
/// `parameters` have the bits that they have without this, when the function's result depends on nothing else that
/// changes in between. Gradients of other tensors that the function reads are not computed.
/// x and y: any shape and dtype, y new memory. Without gradient mode it is function(x). Throws c10::Error in a second
/// backward through the same graph, and when gradients of gradients are asked for.
/// Source: Chen et al. 2016, arXiv:1604.06174; torch.utils.checkpoint.
at::Tensor recompute_in_backward(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                 const std::function<at::Tensor(const at::Tensor&)>& function);

}  // namespace bert
