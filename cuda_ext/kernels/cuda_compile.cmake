# Compiles one kernel file for one architecture and writes, under a title, what nvcc says of registers, shared memory and spills:
#   cmake -DTITLE=TEXT -DRESOURCES=FILE -DCOMMAND=nvcc;... [-DDISASSEMBLE=cuobjdump;-sass;OBJECT -DSASS=FILE] -P cuda_compile.cmake
# and, given a disassembler, the device's instructions.
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT code EQUAL 0)
  string(REGEX REPLACE "ptxas info[^\n]*\n" "" said "${said}")
  message(FATAL_ERROR "${said}")
endif()
if(DISASSEMBLE)
  execute_process(COMMAND ${DISASSEMBLE} RESULT_VARIABLE code OUTPUT_FILE ${SASS} ERROR_VARIABLE error)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${DISASSEMBLE}: ${error}")
  endif()
endif()
file(WRITE ${RESOURCES} "${TITLE}\n${said}")
