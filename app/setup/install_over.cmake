# Runs first in `cmake --install`. If PREFIX has an earlier installation, removes its headers, its LibTorch, the libraries that are opened on
# demand and the manual pages: files that this one lacks would stay and be found. A build against the LibTorch in PREFIX keeps that; TORCH_ROOT says where the build's LibTorch is. Running programs keep
# the files that they have open.
set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
if(EXISTS "${prefix}/lib/cmake/bert/bertConfig.cmake")
  file(REMOVE_RECURSE "${prefix}/include/bert")
  file(GLOB older "${prefix}/lib/libbert_*.so" "${prefix}/share/man/man1/bert-*.1")
  if(older)
    file(REMOVE ${older})
  endif()
  file(REAL_PATH "${prefix}/lib/bert" installed)
  file(REAL_PATH "${TORCH_ROOT}" torch)
  cmake_path(IS_PREFIX installed "${torch}" in_use)
  if(NOT in_use)
    file(REMOVE_RECURSE "${prefix}/lib/bert")
  endif()
endif()
