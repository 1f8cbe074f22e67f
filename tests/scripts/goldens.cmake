# The configuration and tests/scripts/layering.cmake fail if no test reads a golden.

# unread_goldens(RESULT TEXT NAME...): those of the files NAME that TEXT, the tests' source, does not read with golden("NAME"). A generator
# x.py counts as read if x.json is read.
function(unread_goldens result text)
  set(unread "")
  foreach(name ${ARGN})
    string(REGEX REPLACE "\\.py$" ".json" written ${name})
    string(FIND "${text}" "golden(\"${written}\")" place)
    if(place EQUAL -1)
      list(APPEND unread ${name})
    endif()
  endforeach()
  set(${result} "${unread}" PARENT_SCOPE)
endfunction()

# find_unread_goldens(RESULT ROOT): the same for ROOT/tests/golden and the tests of ROOT.
function(find_unread_goldens result root)
  unread_goldens(unread "golden(\"read.json\") // unread.json" read.json read.py unread.json unread.py)
  if(NOT unread STREQUAL "unread.json;unread.py")
    message(FATAL_ERROR "goldens: the check for unread ones finds ${unread} in place of those that are")
  endif()
  file(GLOB goldens RELATIVE ${root}/tests/golden ${root}/tests/golden/*)
  list(FILTER goldens EXCLUDE REGEX "^__pycache__$")
  file(GLOB_RECURSE tests ${root}/tests/*.cc ${root}/tests/*.h)
  set(texts "")
  foreach(test ${tests})
    file(READ ${test} text)
    string(APPEND texts "${text}")
  endforeach()
  unread_goldens(unread "${texts}" ${goldens})
  set(${result} "${unread}" PARENT_SCOPE)
endfunction()
