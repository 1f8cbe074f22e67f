# find_libtorch(PROBLEM HINT...): finds LibTorch in CMAKE_PREFIX_PATH or in one of the HINTs, for our own build and for programs that use
# the installed library. The libraries are named one by one, because LibTorch's own package needs nvcc and does not know the wheels'
# directories for CUDA's libraries. Sets TORCH_ROOT, TORCH_VERSION, TORCH_INCLUDE_DIR, TORCH_CPU_LIBRARY, C10_LIBRARY, TORCH_NEEDS
# (libraries that LibTorch needs and does not find itself), and PROBLEM: a sentence, or empty if LibTorch is usable.
function(find_libtorch problem)
  set(${problem} "" PARENT_SCOPE)
  find_path(TORCH_INCLUDE_DIR torch/script.h HINTS ${TORCH_INSTALL_PREFIX} ${ARGN} PATH_SUFFIXES include ../../include)
  if(NOT TORCH_INCLUDE_DIR)
    list(JOIN ARGN ", " places)
    set(${problem} "no LibTorch in CMAKE_PREFIX_PATH or ${places}" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(TORCH_ROOT ${TORCH_INCLUDE_DIR} DIRECTORY)

  set(version_header ${TORCH_INCLUDE_DIR}/torch/headeronly/version.h)
  if(NOT EXISTS ${version_header})
    set(version_header ${TORCH_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h)  # 2.8
  endif()
  file(STRINGS ${version_header} TORCH_VERSION REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM TORCH_VERSION REPLACE ".* " "")
  list(JOIN TORCH_VERSION . TORCH_VERSION)
  if(TORCH_VERSION VERSION_LESS 2.8)
    set(${problem} "LibTorch ${TORCH_VERSION} in ${TORCH_ROOT} is too old: 2.8 or newer is needed" PARENT_SCOPE)
    return()
  endif()

  find_library(TORCH_CPU_LIBRARY torch_cpu HINTS ${TORCH_ROOT}/lib)
  find_library(C10_LIBRARY c10 HINTS ${TORCH_ROOT}/lib)
  if(NOT TORCH_CPU_LIBRARY OR NOT C10_LIBRARY)
    set(${problem} "LibTorch in ${TORCH_ROOT} has no lib/libtorch_cpu.so or lib/libc10.so" PARENT_SCOPE)
    return()
  endif()

  # A LibTorch with CUDA loads CUDA's runtime and CUPTI, even without a GPU. The wheels look for them in nvidia/ beside torch/. If they are
  # elsewhere, our programs link them.
  set(TORCH_NEEDS "")
  execute_process(COMMAND ldd ${TORCH_CPU_LIBRARY} OUTPUT_VARIABLE loaded COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "lib[^ \t\n]+ => not found" unresolved "${loaded}")
  file(GLOB nvidia LIST_DIRECTORIES TRUE ${TORCH_ROOT}/../nvidia/*)
  foreach(name IN LISTS unresolved)
    string(REGEX REPLACE " .*" "" name "${name}")
    find_library(TORCH_NEEDS_${name} ${name} HINTS ${nvidia} ENV CUDA_PATH ENV CUDA_HOME
      PATHS /usr/local/cuda /usr/local/cuda/extras/CUPTI PATH_SUFFIXES lib lib64)
    if(NOT TORCH_NEEDS_${name})
      string(CONCAT text "LibTorch ${TORCH_VERSION} in ${TORCH_ROOT} needs ${name}, which is neither beside it nor in "
        "CMAKE_PREFIX_PATH. PyPI has it in nvidia-cuda-runtime or nvidia-cuda-cupti (-cu12 for .so.12): unpack that wheel beside torch/")
      set(${problem} "${text}" PARENT_SCOPE)
      return()
    endif()
    list(APPEND TORCH_NEEDS ${TORCH_NEEDS_${name}})
  endforeach()
  foreach(name TORCH_ROOT TORCH_VERSION TORCH_NEEDS)
    set(${name} "${${name}}" PARENT_SCOPE)
  endforeach()
endfunction()
