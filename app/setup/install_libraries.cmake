# Runs in `cmake --install`. Gives PREFIX the libraries that the programs need, so that everybody who can read PREFIX can run them, also where
# the build's LibTorch lies in somebody's home, and so that PREFIX may be moved:
#   lib/bert/torch/lib     LibTorch, and other libraries that the loader does not find by itself
#   lib/bert/nvidia/*/lib  CUDA's libraries of the wheels, where LibTorch's own RPATH looks for them
#   lib/bert/torch/include LibTorch's headers, for find_package(bert)
# install.cmake sets BUILT (our programs and library in the build) and INSTALLED (the same below PREFIX), TORCH_ROOT, TORCH_CPU_LIBRARY,
# TORCH_INCLUDE_DIR, WITH_CUDA, and RUNPATH.
include(${CMAKE_CURRENT_LIST_DIR}/install_directories.cmake)
file(REAL_PATH "${TORCH_ROOT}/.." wheels)
set(loader_directories "^/(usr/)?lib(32|64|x32)?/(x86_64-linux-gnu/)?[^/]+$")
execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

# Installs the file or link `source` as lib/bert/`target`. A hard link costs no space. It shares owner and mode with `source`, so a file that
# somebody else could change, or that not everybody can read, is copied.
function(install_library source target)
  set(place "${prefix}/lib/bert/${target}")
  get_filename_component(directory "${target}" DIRECTORY)
  make_directory("${prefix}/lib/bert/${directory}")
  if(EXISTS "${place}")  # a build against the installed LibTorch may be installed over it
    file(REAL_PATH "${source}" real_source)
    file(REAL_PATH "${place}" real_place)
    if(real_source STREQUAL real_place)
      return()
    endif()
  endif()
  file(REMOVE "${place}")  # not overwritten: running programs keep the old file
  if(IS_SYMLINK "${source}")
    file(READ_SYMLINK "${source}" to)
    if(NOT to MATCHES "/")
      get_filename_component(source_directory "${source}" DIRECTORY)
      install_library("${source_directory}/${to}" "${directory}/${to}")
      file(CREATE_LINK "${to}" "${place}" SYMBOLIC)
      return()
    endif()
  endif()
  file(REAL_PATH "${source}" source)
  execute_process(COMMAND find "${source}" ( -user ${user} -o -user 0 ) -perm -444 -not -perm /022
    OUTPUT_VARIABLE fit COMMAND_ERROR_IS_FATAL ANY)
  set(failed TRUE)
  if(fit)
    file(CREATE_LINK "${source}" "${place}" RESULT failed)  # fails across file systems
  endif()
  if(failed)
    file(COPY_FILE "${source}" "${place}")
    file(CHMOD "${place}" PERMISSIONS ${everybody})
  endif()
endfunction()

# The libraries that are loaded at the start.
execute_process(COMMAND ldd ${BUILT} OUTPUT_VARIABLE loaded COMMAND_ERROR_IS_FATAL ANY)
if(loaded MATCHES "([^ \t\n]+) => not found")
  message(FATAL_ERROR "The build does not find ${CMAKE_MATCH_1}. Run app/setup.sh again, then install.")
endif()
string(REGEX MATCHALL "=> /[^\n]+ \\(0x" libraries "${loaded}")
list(TRANSFORM libraries REPLACE "=> (.+) \\(0x" "\\1")
if(WITH_CUDA)  # and those that LibTorch and CUDA's libraries open later
  file(GLOB later ${TORCH_ROOT}/lib/lib*.so* ${wheels}/nvidia/*/lib/lib*.so*)
  list(FILTER later INCLUDE REGEX "/lib(torch|c10|caffe2|cu|nv)[^/]*$")
  list(FILTER later EXCLUDE REGEX "/libtorch_python[^/]*$")
  list(APPEND libraries ${later})
endif()
list(REMOVE_DUPLICATES libraries)
# Those that the loader finds everywhere stay where they are. The driver's libraries belong to the machine.
list(FILTER libraries EXCLUDE REGEX "${loader_directories}|/lib(cuda|nvidia-[^/]*)\\.so[^/]*$")
list(REMOVE_ITEM libraries ${BUILT})
foreach(library IN LISTS libraries)
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" real)
  file(RELATIVE_PATH real "${wheels}" "${real}")
  get_filename_component(directory "${real}" DIRECTORY)
  if(NOT directory MATCHES "^nvidia/[^/]+/lib$")
    set(directory torch/lib)
  endif()
  install_library("${library}" "${directory}/${name}")
endforeach()

if(NOT TORCH_CPU_LIBRARY MATCHES "${loader_directories}")
  foreach(part ATen c10 caffe2 fmt torch)
    if(EXISTS "${TORCH_INCLUDE_DIR}/${part}")
      file(INSTALL "${TORCH_INCLUDE_DIR}/${part}" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/bert/torch/include" MESSAGE_NEVER)
    endif()
  endforeach()
endif()
message(STATUS "Installed: ${CMAKE_INSTALL_PREFIX}/lib/bert, with LibTorch")

foreach(file IN LISTS INSTALLED)
  file(RPATH_SET FILE "${prefix}/${file}" NEW_RPATH "${RUNPATH}")
endforeach()
