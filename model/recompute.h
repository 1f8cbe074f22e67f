// Gradient checkpointing: a second forward instead of the memory that the first one would keep.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace bert {

/// y = function(x). Backward keeps x alone and runs the function again, under the autocast of this call, and on CUDA
/// from the generator state of this call. So the gradients of x and of `parameters` have the same bits as without
/// recomputation, if the result of the function depends on nothing else that changes in between. Gradients of other
/// tensors that the function reads are not computed.
/// x and y have any shape and dtype; y is new memory. Without gradient mode this is function(x). Throws c10::Error in a
/// second backward through the same graph, and for gradients of gradients.
/// Source: Chen et al. 2016, arXiv:1604.06174; torch.utils.checkpoint.
at::Tensor recompute_in_backward(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                 const std::function<at::Tensor(const at::Tensor&)>& function);

}  // namespace bert
