# xgrammar, which compiles the grammars of structured output; everything else builds without it.
#   BRAID_GRAMMAR: AUTO (where its source is), ON (or an error), OFF
#   BRAID_XGRAMMAR_SOURCE: its unpacked source, from tools/fetch_xgrammar.py
# Sets BRAID_HAS_GRAMMAR, makes the target braid_xgrammar, and says in one line what was found.
set(BRAID_XGRAMMAR_VERSION 0.2.8)
set(cache $ENV{XDG_CACHE_HOME})
if(NOT cache)
  set(cache $ENV{HOME}/.cache)
endif()
set(BRAID_GRAMMAR AUTO CACHE STRING "Build structured output: AUTO, ON or OFF")
set_property(CACHE BRAID_GRAMMAR PROPERTY STRINGS AUTO ON OFF)
set(BRAID_XGRAMMAR_SOURCE ${cache}/braid/sources/xgrammar-${BRAID_XGRAMMAR_VERSION}
    CACHE PATH "Unpacked source of xgrammar ${BRAID_XGRAMMAR_VERSION}")

set(BRAID_HAS_GRAMMAR OFF)
if(BRAID_GRAMMAR STREQUAL OFF)
  message(STATUS "Braid: no structured output, as asked")
elseif(EXISTS ${BRAID_XGRAMMAR_SOURCE}/include/xgrammar/xgrammar.h)
  set(BRAID_HAS_GRAMMAR ON)
  message(STATUS "Braid: structured output by xgrammar ${BRAID_XGRAMMAR_VERSION}")
elseif(BRAID_GRAMMAR STREQUAL ON)
  message(FATAL_ERROR "BRAID_GRAMMAR is ON and ${BRAID_XGRAMMAR_SOURCE} has no xgrammar: run tools/fetch_xgrammar.py")
else()
  message(STATUS "Braid: no structured output: tools/fetch_xgrammar.py fetches xgrammar's source")
endif()

if(BRAID_HAS_GRAMMAR)
  # Not by its own CMakeLists.txt, which builds Python bindings and makes warnings errors.
  file(GLOB_RECURSE sources ${BRAID_XGRAMMAR_SOURCE}/cpp/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cpp/tvm_ffi/")
  add_library(braid_xgrammar STATIC ${sources})
  set_target_properties(braid_xgrammar PROPERTIES CXX_STANDARD 17)
  target_compile_options(braid_xgrammar PRIVATE -w)
  target_compile_definitions(braid_xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  target_include_directories(braid_xgrammar SYSTEM PUBLIC
    $<BUILD_INTERFACE:${BRAID_XGRAMMAR_SOURCE}/include>
    $<BUILD_INTERFACE:${BRAID_XGRAMMAR_SOURCE}/3rdparty/picojson>
    $<BUILD_INTERFACE:${BRAID_XGRAMMAR_SOURCE}/3rdparty/dlpack/include>)
  target_link_libraries(braid_xgrammar PUBLIC Threads::Threads)
endif()
