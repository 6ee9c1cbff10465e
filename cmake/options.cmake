# Flags that everything shares, as the interface target ra_flags; and what was found of the optional dependencies.
find_package(Threads REQUIRED)

add_library(ra_flags INTERFACE)
target_compile_definitions(ra_flags INTERFACE _POSIX_C_SOURCE=200809L)
target_compile_options(ra_flags INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith
                                          $<$<BOOL:${RA_WERROR}>:-Werror>)
if(RA_SANITIZE)
  target_compile_options(ra_flags INTERFACE -fsanitize=${RA_SANITIZE} -fno-omit-frame-pointer
                                            -fno-sanitize-recover=all)
  target_link_options(ra_flags INTERFACE -fsanitize=${RA_SANITIZE})
endif()

# libgomp is not instrumented, so ThreadSanitizer would report every barrier of it.
set(RA_HAVE_OPENMP FALSE)
if(NOT RA_OPENMP STREQUAL "OFF" AND NOT RA_SANITIZE MATCHES "thread")
  find_package(OpenMP COMPONENTS C)
  set(RA_HAVE_OPENMP ${OpenMP_C_FOUND})
endif()
if(RA_OPENMP STREQUAL "ON" AND NOT RA_HAVE_OPENMP)
  message(FATAL_ERROR "RA_OPENMP=ON, but the compiler has no OpenMP")
endif()

set(RA_HAVE_MPI FALSE)
if(NOT RA_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI COMPONENTS C)
  set(RA_HAVE_MPI ${MPI_C_FOUND})
endif()
if(RA_MPI STREQUAL "ON" AND NOT RA_HAVE_MPI)
  message(FATAL_ERROR "RA_MPI=ON, but no MPI was found (Debian: apt-get install libopenmpi-dev openmpi-bin)")
endif()
