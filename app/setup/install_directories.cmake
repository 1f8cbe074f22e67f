# Runs before the files are installed: makes PREFIX and its directories, with mode 0755 whatever the umask. Directories that are there keep theirs.
set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
set(everybody OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

function(make_directory path)
  if(NOT IS_DIRECTORY "${path}")
    get_filename_component(parent "${path}" DIRECTORY)
    make_directory("${parent}")
    file(MAKE_DIRECTORY "${path}")
    file(CHMOD "${path}" PERMISSIONS ${everybody})
  endif()
endfunction()

foreach(directory bin include/bert lib/cmake/bert lib/bert/torch/include share/bert/configs share/bert/examples
    share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d share/man/man1)
  make_directory("${prefix}/${directory}")
endforeach()
