# `cmake --install build --prefix P` installs the two programs, libbert.so, its public headers under include/bert/, the package that
# find_package(bert CONFIG) reads, configurations and examples under share/bert/, completion and manual pages under share/, and LibTorch under
# lib/bert/. The installed tree can be moved, and everybody can use it.
include(CMakePackageConfigHelpers)
install(CODE "
  set(TORCH_ROOT \"${TORCH_ROOT}\")
  include(\"${CMAKE_SOURCE_DIR}/app/setup/install_over.cmake\")
  include(\"${CMAKE_SOURCE_DIR}/app/setup/install_directories.cmake\")")

# The public headers. Our headers that they include are installed too, and nothing else.
set(BERT_PUBLIC_HEADERS
  app/inference.h
  data/loader/dataloader.h data/io/error.h data/examples/pretraining_data.h data/formats/shard.h data/tokenizer/tokenizer.h
  model/bert.h model/inference.h model/recompute.h model/state_dict.h model/torchscript.h
  optim/adam.h optim/amp.h optim/data_parallel.h optim/lamb.h optim/lr_schedule.h optim/optimizer.h
  optim/optimizer_state.h optim/sharded_optimizer.h)

# In the tree a header is "optim/amp.h". An installed header is "bert/optim/amp.h", because another program may have a file optim/amp.h.
# The folder app/ means nothing to such a program: "app/inference.h" is "bert/inference.h".
install(CODE "
  set(root \"${CMAKE_SOURCE_DIR}\")
  set(staged \"${CMAKE_BINARY_DIR}/include/bert\")
  set(left \"${BERT_PUBLIC_HEADERS}\")
  file(REMOVE_RECURSE \${staged})
  while(left)
    list(POP_FRONT left header)
    string(REGEX REPLACE \"^app/\" \"\" installed \${header})
    if(EXISTS \${staged}/\${installed})
      continue()
    endif()
    file(STRINGS \${root}/\${header} lines REGEX \"^#include \\\"\")
    list(TRANSFORM lines REPLACE \"^#include \\\"([^\\\"]*)\\\".*\" \"\\\\1\")
    list(APPEND left \${lines})
    file(READ \${root}/\${header} text)
    string(REGEX REPLACE \"#include \\\"(app/)?([^\\\"]*)\\\"\" \"#include \\\"bert/\\\\2\\\"\" text \"\${text}\")
    file(WRITE \${staged}/\${installed} \"\${text}\")
  endwhile()")
install(DIRECTORY ${CMAKE_BINARY_DIR}/include/ DESTINATION include)
install(DIRECTORY configs/ DESTINATION share/bert/configs FILES_MATCHING PATTERN "*.json")
install(FILES app/examples/CMakeLists.txt app/examples/answer.cc app/examples/train.cc DESTINATION share/bert/examples)

# Completion and manual pages, which the programs write.
install(CODE "
  set(share \"${CMAKE_BINARY_DIR}/share\")
  file(REMOVE_RECURSE \${share})
  foreach(script bash:bash-completion/completions/bert zsh:zsh/site-functions/_bert fish:fish/vendor_completions.d/bert.fish)
    string(REPLACE \":\" \";\" script \${script})
    list(GET script 0 shell)
    list(GET script 1 file)
    get_filename_component(directory \${file} DIRECTORY)
    file(MAKE_DIRECTORY \${share}/\${directory})
    execute_process(COMMAND \"$<TARGET_FILE:bert>\" completion \${shell} OUTPUT_FILE \${share}/\${file} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  file(CREATE_LINK bert \${share}/bash-completion/completions/bertrun SYMBOLIC)
  file(CREATE_LINK bert.fish \${share}/fish/vendor_completions.d/bertrun.fish SYMBOLIC)
  execute_process(COMMAND \"$<TARGET_FILE:bert>\" man --output \${share}/man/man1 COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION share)

target_include_directories(bert_torch INTERFACE $<INSTALL_INTERFACE:include>)
target_compile_features(bert_torch INTERFACE cxx_std_20)
target_link_libraries(bert_torch INTERFACE $<INSTALL_INTERFACE:bert::libtorch>)
set_target_properties(bert_torch PROPERTIES EXPORT_NAME bert)
install(TARGETS bert bertrun RUNTIME DESTINATION bin)
install(TARGETS bert_torch EXPORT bertTargets LIBRARY DESTINATION lib)
set(BERT_PLUGINS bert_sentencepiece)
if(TARGET bert_arrow)  # app/setup.sh --arrow
  list(APPEND BERT_PLUGINS bert_arrow)
endif()
install(TARGETS ${BERT_PLUGINS} LIBRARY DESTINATION lib)
set(plugins_built)
set(plugins_installed)
foreach(plugin IN LISTS BERT_PLUGINS)
  string(APPEND plugins_built " \"$<TARGET_FILE:${plugin}>\"")
  string(APPEND plugins_installed " lib/$<TARGET_FILE_NAME:${plugin}>")
endforeach()
install(CODE "
  set(BUILT \"$<TARGET_FILE:bert>\" \"$<TARGET_FILE:bertrun>\" \"$<TARGET_FILE:bert_torch>\"${plugins_built})
  set(INSTALLED bin/bert bin/bertrun lib/libbert.so${plugins_installed})
  set(RUNPATH \"${BERT_INSTALLED_RUNPATH}\")
  set(TORCH_ROOT \"${TORCH_ROOT}\")
  set(TORCH_CPU_LIBRARY \"${TORCH_CPU_LIBRARY}\")
  set(TORCH_INCLUDE_DIR \"${TORCH_INCLUDE_DIR}\")
  set(WITH_CUDA ${BERT_USE_CUDA})
  include(\"${CMAKE_SOURCE_DIR}/app/setup/install_libraries.cmake\")")

install(EXPORT bertTargets NAMESPACE bert:: DESTINATION lib/cmake/bert)
configure_package_config_file(app/setup/bertConfig.cmake.in ${CMAKE_BINARY_DIR}/bertConfig.cmake INSTALL_DESTINATION lib/cmake/bert
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/bertConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/bertConfig.cmake ${CMAKE_BINARY_DIR}/bertConfigVersion.cmake app/setup/libtorch.cmake
  DESTINATION lib/cmake/bert)
