# Flags that everything shares, as the interface target ra_flags; and what was found of the optional dependencies:
# RA_HAVE_OPENMP, RA_HAVE_MPI, RA_HAVE_UCX, RA_HAVE_CUDA, RA_HAVE_NCCL, RA_HAVE_TESTS.
find_package(Threads REQUIRED)

# Programs find their library in the build tree, and once installed beside themselves, wherever the prefix is.
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${bin_to_lib};$ORIGIN")

add_library(ra_flags INTERFACE)
target_compile_definitions(ra_flags INTERFACE _POSIX_C_SOURCE=200809L)
set(ra_warnings -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith $<$<BOOL:${RA_WERROR}>:-Werror>)
target_compile_options(ra_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${ra_warnings}>)
# Sanitized code is compiled quickly, with the lines of a backtrace and no more; the kernels keep their -O3.
if(RA_SANITIZE)
  target_compile_options(ra_flags INTERFACE -fsanitize=${RA_SANITIZE} -fno-omit-frame-pointer
                                            -fno-sanitize-recover=all -O1 -g1)
  target_link_options(ra_flags INTERFACE -fsanitize=${RA_SANITIZE})
endif()

# Sanitized code starts its threads without OpenMP. OpenMP's libraries are not instrumented, so ThreadSanitizer would
# report every barrier of theirs, and MemorySanitizer what they write. Under AddressSanitizer it is clang's runtime, which
# names a file in /dev/shm by the process: one that was killed leaves it behind, perhaps empty, and a later process of the
# same number maps it and dies of SIGBUS.
set(RA_HAVE_OPENMP FALSE)
if(NOT RA_OPENMP STREQUAL "OFF" AND NOT RA_SANITIZE)
  find_package(OpenMP COMPONENTS C QUIET)
  set(RA_HAVE_OPENMP ${OpenMP_C_FOUND})
endif()
# What an installed archive needs of it: the runtime of the compiler that made the archive, whichever compiler links it.
set(RA_OPENMP_LIBRARIES ${OpenMP_C_LIB_NAMES})
list(REMOVE_ITEM RA_OPENMP_LIBRARIES pthread)
if(RA_OPENMP STREQUAL "ON" AND NOT RA_HAVE_OPENMP)
  message(FATAL_ERROR "RA_OPENMP=ON, but there is no OpenMP for ${CMAKE_C_COMPILER} (or RA_SANITIZE excludes it)")
endif()

set(RA_HAVE_MPI FALSE)
if(NOT RA_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI COMPONENTS C QUIET)
  set(RA_HAVE_MPI ${MPI_C_FOUND})
endif()
if(RA_MPI STREQUAL "ON" AND NOT RA_HAVE_MPI)
  message(FATAL_ERROR "RA_MPI=ON, but no MPI was found (Debian: apt-get install libopenmpi-dev openmpi-bin)")
endif()
# Tests start more ranks than there are cores, in containers too; MPICH does so without being asked.
set(RA_MPIRUN_FLAGS "")
if(RA_HAVE_MPI)
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpirun_version ERROR_QUIET)
  if(mpirun_version MATCHES "Open MPI|OpenRTE")
    set(RA_MPIRUN_FLAGS --oversubscribe --allow-run-as-root --bind-to none)
  endif()
endif()

# UCX's headers; its library is opened at run time and never linked.
set(RA_HAVE_UCX FALSE)
if(NOT RA_UCX STREQUAL "OFF")
  find_path(UCX_INCLUDE_DIR ucp/api/ucp.h)
  mark_as_advanced(UCX_INCLUDE_DIR)
  if(UCX_INCLUDE_DIR)
    set(RA_HAVE_UCX TRUE)
  endif()
endif()
if(RA_UCX STREQUAL "ON" AND NOT RA_HAVE_UCX)
  message(FATAL_ERROR "RA_UCX=ON, but ucp/api/ucp.h was not found (Debian: apt-get install libucx-dev)")
endif()

include(cmake/cuda.cmake)

set(RA_HAVE_TESTS FALSE)
if(RA_TESTS STREQUAL "ON" OR (RA_TESTS STREQUAL "AUTO" AND PROJECT_IS_TOP_LEVEL))
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
  endif()
  set(RA_HAVE_TESTS ${CMOCKA_FOUND})
endif()
if(RA_TESTS STREQUAL "ON" AND NOT RA_HAVE_TESTS)
  message(FATAL_ERROR "RA_TESTS=ON, but no cmocka was found (Debian: apt-get install libcmocka-dev pkg-config)")
endif()

foreach(what OPENMP MPI UCX CUDA NCCL TESTS)
  if(RA_HAVE_${what})
    message(STATUS "ringattn: ${what} yes")
  else()
    message(STATUS "ringattn: ${what} no")
  endif()
endforeach()
