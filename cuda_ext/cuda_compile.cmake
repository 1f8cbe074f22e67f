# Compiles one kernel file for one architecture and writes what nvcc says of registers, shared memory and spills:
#   cmake -DRESOURCES=FILE -DCOMMAND=nvcc;... -P cuda_compile.cmake
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT code EQUAL 0)
  string(REGEX REPLACE "ptxas info[^\n]*\n" "" said "${said}")
  message(FATAL_ERROR "${said}")
endif()
file(WRITE ${RESOURCES} "${said}")
