# add_suites(TARGET [PREFIX TEXT] [PROPERTIES NAME VALUE...]): one ctest entry for each suite of a GoogleTest program. An entry for each test,
# as gtest_discover_tests makes them, pays for each what all tests of a suite can share: the start of the process, LibTorch or Qt, and what
# SetUpTestSuite makes. The entry counts as skipped if all its tests are. The program lists its suites whenever it is built.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(PW_SUITES_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  function(add_suites target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" PREFIX PROPERTIES)
    set(entries ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
    add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${entries} VERBATIM
      COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D ENTRIES=${entries} -D PREFIX=${arg_PREFIX}
              -D "PROPERTIES=${arg_PROPERTIES}" -P ${PW_SUITES_SCRIPT})
    if(NOT EXISTS ${entries})
      file(WRITE ${entries} "add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\n")
    endif()
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${entries})
  endfunction()
  return()
endif()

execute_process(COMMAND ${PROGRAM} --gtest_list_tests TIMEOUT 60 OUTPUT_VARIABLE listing RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} does not list its tests: ${result}\n${listing}")
endif()
# A line `Suite.` or `Suite/0.  # TypeParam = T` before the indented names of its tests.
string(REGEX MATCHALL "\n[A-Za-z0-9_/]+\\.[ \n]" suites "\n${listing}")
set(script "")
foreach(suite ${suites})
  string(REGEX MATCH "[A-Za-z0-9_/]+" suite ${suite})
  string(APPEND script "add_test(\"${PREFIX}${suite}\" \"${PROGRAM}\" \"--gtest_filter=${suite}.*\")\n"
    "set_tests_properties(\"${PREFIX}${suite}\" PROPERTIES ${PROPERTIES}\n"
    "  SKIP_REGULAR_EXPRESSION [=[\\[  PASSED  \\] 0 tests\\.\n(\\[  SKIPPED \\][^\n]*\n)+$]=])\n")
endforeach()
file(WRITE ${ENTRIES} "${script}")
