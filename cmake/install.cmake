# What `cmake --install` puts where: headers, libraries, the command, the man page, pkg-config files and a CMake package.
# Everything refers to its neighbours by relative paths, so an installed tree can be moved.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ringattn)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

add_library(ringattn::ringattn ALIAS ringattn_shared)
add_library(ringattn::ringattn_static ALIAS ringattn_static)
set_target_properties(ringattn_shared PROPERTIES EXPORT_NAME ringattn)

install(FILES include/ringattn/ringattn.h include/ringattn/transport.h include/ringattn/rendezvous.h
              include/ringattn/ucx.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ringattn)
install(TARGETS ringattn_shared ringattn_static EXPORT ringattn-targets)
install(EXPORT ringattn-targets NAMESPACE ringattn:: DESTINATION ${package_dir})
install(TARGETS ringattn)
install(FILES docs/ringattn.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

# A package of its own inside the package: whoever wants no MPI need not have it.
if(RA_HAVE_MPI)
  add_library(ringattn::mpi ALIAS ringattn_mpi_shared)
  add_library(ringattn::mpi_static ALIAS ringattn_mpi_static)
  set_target_properties(ringattn_mpi_shared PROPERTIES EXPORT_NAME mpi)
  set_target_properties(ringattn_mpi_static PROPERTIES EXPORT_NAME mpi_static)
  install(FILES include/ringattn/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ringattn)
  install(TARGETS ringattn_mpi_shared ringattn_mpi_static EXPORT ringattn-mpi-targets)
  install(EXPORT ringattn-mpi-targets NAMESPACE ringattn:: DESTINATION ${package_dir})
endif()

# Likewise CUDA. The shared library has the CUDA runtime inside.
if(RA_HAVE_CUDA)
  add_library(ringattn::cuda ALIAS ringattn_cuda_shared)
  set_target_properties(ringattn_cuda_shared PROPERTIES EXPORT_NAME cuda)
  install(FILES include/ringattn/cuda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ringattn)
  install(TARGETS ringattn_cuda_shared EXPORT ringattn-cuda-targets)
  install(EXPORT ringattn-cuda-targets NAMESPACE ringattn:: DESTINATION ${package_dir})
endif()

configure_package_config_file(cmake/ringattn-config.cmake.in ${PROJECT_BINARY_DIR}/ringattn-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ringattn-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ringattn-config.cmake ${PROJECT_BINARY_DIR}/ringattn-config-version.cmake
        DESTINATION ${package_dir})

# pkg-config. Libs.private is what an archive needs beside itself.
file(RELATIVE_PATH PC_PREFIX ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
set(PC_PRIVATE "")
foreach(name ${RA_OPENMP_LIBRARIES})
  string(APPEND PC_PRIVATE "-l${name} ")
endforeach()
foreach(name ${CMAKE_DL_LIBS})
  string(APPEND PC_PRIVATE "-l${name} ")
endforeach()
string(APPEND PC_PRIVATE "-lm -pthread")
set(PC_MPI_CFLAGS "")
foreach(dir ${MPI_C_INCLUDE_DIRS})
  string(APPEND PC_MPI_CFLAGS " -I${dir}")
endforeach()
string(REPLACE ";" " " PC_MPI_LIBS "${MPI_C_LIBRARIES}")

set(packages ringattn)
if(RA_HAVE_MPI)
  list(APPEND packages ringattn_mpi)
endif()
if(RA_HAVE_CUDA)
  list(APPEND packages ringattn_cuda)
endif()
foreach(name ${packages})
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig_dir})
endforeach()
