# What goes into a wheel: the libraries alone, in the package's folder lib/. Links become copies in wheels, so the libraries have
# no versions in their names.
set(wheel_libraries ringattn_shared)
foreach(name mpi cuda)
  if(TARGET ringattn_${name}_shared)
    list(APPEND wheel_libraries ringattn_${name}_shared)
  endif()
endforeach()
foreach(library ${wheel_libraries})
  set_property(TARGET ${library} PROPERTY VERSION)
  set_property(TARGET ${library} PROPERTY SOVERSION)
  set_property(TARGET ${library} PROPERTY INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${library} LIBRARY DESTINATION lib)
endforeach()
