# Tests of the source tree itself, which is the same whatever it is compiled with.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

if(NOT RA_SANITIZE)
  add_test(NAME layers COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_layers.py ${PROJECT_SOURCE_DIR})
  set_tests_properties(layers PROPERTIES TIMEOUT 60)
endif()
