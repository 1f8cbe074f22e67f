#include "app/inference/npy.h"

#include <ATen/ATen.h>

#include <bit>

#include "data/io/files.h"

namespace bert {

void save_npy(const std::string& path, const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kChar || type == at::kByte,
              "save_npy: the tensor must be fp32, int8 or uint8, got ", type, ".");
  const std::string descr = type == at::kFloat ? "<f4" : type == at::kChar ? "|i1" : "|u1";
  static_assert(std::endian::native == std::endian::little, "'<f4' above");
  std::string shape;
  for (const int64_t size : tensor.sizes()) shape += std::to_string(size) + ", ";  // a comma after one size is needed
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
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
