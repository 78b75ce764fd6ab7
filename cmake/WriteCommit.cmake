# Writes OUT: a header with the commit of SOURCE, "" where it is no clone. Leaves OUT alone where
# that is what it says already, so that nothing is compiled anew.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=+ --abbrev=10 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
set(text "#pragma once\n#define BRAID_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
