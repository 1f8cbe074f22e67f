# The libraries of NVIDIA that LibTorch needs: NULL_DEVICE_LIBRARIES. A row is
#   name | soname | names | sources
# names: how the names of the functions begin, where their symbols do not carry the soname as version. The first row counts.
# sources: files of this directory, separated by spaces. They define the functions that are made. Every other function that
#   LibTorch asks for is a weak one of NAME_stubs.cc, which generate_stubs.cmake writes, with NAME.map, the linker's script.
# A library links its sources, its NAME_stubs.cc and libcudart.so.13, with -Wl,-soname,SONAME and
# -Wl,--version-script=NAME.map. The sources of libcudart itself are those of ../runtime, whose script it has.
#
# No library of ours is needed in place of libcupti.so.13, which comes with LibTorch's wheel and is used by profilers only,
# nor for NVTX, which is headers.
set(NULL_DEVICE_LIBRARIES
    "libcudart|libcudart.so.13||"
    "libcublas|libcublas.so.13||cublas.cc"
    "libcublasLt|libcublasLt.so.13||cublaslt.cc"
    "libcudnn|libcudnn.so.9||cudnn.cc"
    "libcufft|libcufft.so.12||"
    "libcusparse|libcusparse.so.12||"
    "libcusolver|libcusolver.so.12||"
    "libcusparseLt|libcusparseLt.so.0|cusparseLt[A-Z]|"
    "libcufile|libcufile.so.0|cuFile[A-Z]|"
    "libcurand|libcurand.so.10||"
    "libnccl|libnccl.so.2|nccl[A-Z]|nccl.cc nccl_arithmetic.cc nccl_channel.cc nccl_communicator.cc"
    "libnvshmem_host|libnvshmem_host.so.3|nvshmem[a-z_]|"
    "libnvrtc|libnvrtc.so.13||"
    "libcuda|libcuda.so.1|cu[A-Z]|cuda_driver.cc")
