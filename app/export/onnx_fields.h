// The numbers of the fields of ONNX's messages that this program writes, by message, and of its types.
// Source: onnx/onnx.proto of github.com/onnx/onnx, version 1.12.
#pragma once

#include <cstdint>

namespace bert::onnx {

namespace model {
enum : uint64_t { kIrVersion = 1, kProducerName = 2, kGraph = 7, kOpsetImport = 8, kMetadataProps = 14 };
}
namespace opset {
enum : uint64_t { kDomain = 1, kVersion = 2 };
}
/// StringStringEntryProto
namespace entry {
enum : uint64_t { kKey = 1, kValue = 2 };
}
namespace graph {
enum : uint64_t { kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12, kValueInfo = 13 };
}
namespace node {
enum : uint64_t { kInput = 1, kOutput = 2, kName = 3, kOpType = 4, kAttribute = 5 };
}
namespace attribute {
enum : uint64_t { kName = 1, kFloat = 2, kInt = 3, kInts = 8, kType = 20 };
inline constexpr int64_t kFloatType = 1, kIntType = 2, kIntsType = 7;
}  // namespace attribute
namespace tensor {
enum : uint64_t { kDims = 1, kDataType = 2, kName = 8, kRawData = 9, kExternalData = 13, kDataLocation = 14 };
inline constexpr int64_t kExternal = 1;  // of kDataLocation
}  // namespace tensor
namespace value_info {
enum : uint64_t { kName = 1, kType = 2 };
}
namespace type {
enum : uint64_t { kTensorType = 1 };
}
namespace tensor_type {
enum : uint64_t { kElemType = 1, kShape = 2 };
}
namespace shape {
enum : uint64_t { kDim = 1 };
}
namespace dimension {
enum : uint64_t { kValue = 1, kParam = 2 };
}

/// TensorProto.DataType
inline constexpr int64_t kFloatElements = 1, kInt64Elements = 7, kHalfElements = 10;

}  // namespace bert::onnx
