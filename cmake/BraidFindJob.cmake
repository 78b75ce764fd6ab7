# Libraries for jobs of several processes; everything else builds without them.
#   BRAID_UCX, BRAID_PMIX: AUTO (where pkg-config finds it), ON (or an error), OFF
# Sets BRAID_HAS_UCX and BRAID_HAS_PMIX, and says in one line each what was found.
function(braid_find_optional name module package)
  set(BRAID_${name} AUTO CACHE STRING "Use ${module}: AUTO, ON or OFF")
  set_property(CACHE BRAID_${name} PROPERTY STRINGS AUTO ON OFF)
  set(BRAID_HAS_${name} OFF PARENT_SCOPE)
  if(BRAID_${name} STREQUAL OFF)
    message(STATUS "${name}: none, as asked")
    return()
  endif()
  pkg_check_modules(${name} QUIET IMPORTED_TARGET GLOBAL ${module})
  if(${name}_FOUND)
    message(STATUS "${name}: ${${name}_VERSION}")
    set(BRAID_HAS_${name} ON PARENT_SCOPE)
  elseif(BRAID_${name} STREQUAL ON)
    message(FATAL_ERROR "BRAID_${name} is ON and pkg-config finds no ${module}: install ${package}")
  else()
    message(STATUS "${name}: none, no ${module} found (${package}): jobs have one process")
  endif()
endfunction()

braid_find_optional(UCX "ucx>=1.13" libucx-dev)
braid_find_optional(PMIX "pmix>=4" libpmix-dev)
