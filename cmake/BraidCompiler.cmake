# Refuses a C++ compiler that is known not to build Braid, by name and version.
set(least_GNU 12)
set(least_Clang 16)
if(DEFINED least_${CMAKE_CXX_COMPILER_ID} AND
   CMAKE_CXX_COMPILER_VERSION VERSION_LESS least_${CMAKE_CXX_COMPILER_ID})
  message(FATAL_ERROR "Braid needs g++ 12 or clang++ 16, or newer: ${CMAKE_CXX_COMPILER} is "
                      "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. "
                      "-DCMAKE_CXX_COMPILER=g++-12 names another.")
endif()
