#include "app/inference/npy.h"

#include <ATen/ATen.h>

#include <bit>

#include "data/io/files.h"

namespace bert {

void save_npy(const std::string& path, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, "save_npy: the tensor must be fp32, got ", tensor.scalar_type(), ".");
  static_assert(std::endian::native == std::endian::little, "'<f4' below");
  std::string shape;
  for (const int64_t size : tensor.sizes()) shape += std::to_string(size) + ", ";  // a comma after one size is needed
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr size_t kPreamble = 10, kAlign = 64;  // magic, version, length of the header; the data begin at a multiple
  header.append(kAlign - 1 - (kPreamble + header.size()) % kAlign, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  const at::Tensor values = tensor.to(at::kCPU).contiguous();
  AtomicFile file(path);
  file.write(std::string("\x93NUMPY\x01\x00", 8));
  file.write(&length, sizeof length);
  file.write(header);
  file.write(values.const_data_ptr(), values.nbytes());
  file.commit();
}

}  // namespace bert
