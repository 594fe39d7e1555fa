# What `cmake --install` and `./dev package` put under a prefix. The program finds its modules and resources relative to itself, so any prefix works:
#
#   bin/ pipewright pipewright-gui      lib/pipewright/ the modules      share/pipewright/ resources
#   share/{man,bash-completion,applications,icons,mime,doc}: for the system
#
# What is for the system, and the app, is of the component `system`; a wheel takes all others, and the component `python` (app/python).
set(PW_PACKAGE_FOLDER ${PROJECT_SOURCE_DIR}/resources/package)
set(PW_MANUAL_FOLDER ${PROJECT_BINARY_DIR}/manual)

set(programs "")
set(modules "")
foreach(target pipewright pipewright-gui)
  if(TARGET ${target})
    list(APPEND programs ${target})
  endif()
endforeach()
foreach(target pw_torch pw_ucx pw_cuda)
  if(TARGET ${target})
    list(APPEND modules ${target})
  endif()
endforeach()

# The manual's pages are made of what the programs' --help says.
find_program(PW_PYTHON3 python3 PATHS /usr/bin NO_DEFAULT_PATH)  # not a version manager's wrapper that comes first in PATH
find_program(PW_PYTHON3 python3 REQUIRED)
set(pages "")
foreach(program IN LISTS programs)
  set(page ${PW_MANUAL_FOLDER}/${program}.1)
  add_custom_command(
    OUTPUT ${page}
    COMMAND ${PW_PYTHON3} -B ${PW_PACKAGE_FOLDER}/manual.py $<TARGET_FILE:${program}> ${page}
    DEPENDS ${program} ${PW_PACKAGE_FOLDER}/manual.py
    COMMENT "Writing the manual of ${program}"
    VERBATIM)
  list(APPEND pages ${page})
endforeach()
# All that is installed.
add_custom_target(package_parts ALL DEPENDS ${programs} ${modules} ${pages})

install(TARGETS pipewright RUNTIME DESTINATION bin)
if(TARGET pipewright-gui)
  install(TARGETS pipewright-gui RUNTIME DESTINATION bin COMPONENT system)
endif()
install(TARGETS ${modules} LIBRARY DESTINATION lib/pipewright)
# No run paths: libraries of the system are where it looks, and LibTorch is loaded before the module that needs it (backends/torch/wheel.h). CMake
# itself removes only those that it added, and not those among the wheel's link options.
foreach(target IN LISTS modules)
  install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/pipewright/$<TARGET_FILE_NAME:${target}>\")")
endforeach()
install(FILES ${pages} DESTINATION share/man/man1 COMPONENT system)
install(FILES ${PW_PACKAGE_FOLDER}/completion.bash DESTINATION share/bash-completion/completions RENAME pipewright COMPONENT system)
# Documents lie as in the repository, so that their links lead to the same places.
install(FILES LICENSE README.md CONTRIBUTING.md ${PW_PACKAGE_FOLDER}/copyright DESTINATION share/doc/pipewright COMPONENT system)
install(DIRECTORY resources/docs DESTINATION share/doc/pipewright/resources COMPONENT system)
file(GLOB pictures CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/resources/readme/*.png)
install(FILES ${pictures} DESTINATION share/doc/pipewright/resources/readme COMPONENT system)

# What the programs read, the examples of the documents, and the exporter for Python.
install(DIRECTORY resources/clusters resources/examples resources/models DESTINATION share/pipewright)
install(FILES resources/links.json DESTINATION share/pipewright)
file(GLOB exporter CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/resources/export_*.py)
install(FILES ${exporter} resources/stream_batches.py resources/torch_pipeline.py resources/torch_stages.py resources/requirements.txt DESTINATION share/pipewright)

if(TARGET pipewright-gui)
  install(DIRECTORY resources/icons DESTINATION share/pipewright COMPONENT system FILES_MATCHING PATTERN *.png)
  install(FILES resources/icons/pipewright.svg DESTINATION share/icons/hicolor/scalable/apps COMPONENT system)
  foreach(size 48 128 256)
    install(FILES resources/icons/pipewright-${size}.png DESTINATION share/icons/hicolor/${size}x${size}/apps RENAME pipewright.png COMPONENT system)
  endforeach()
  install(FILES ${PW_PACKAGE_FOLDER}/pipewright.desktop DESTINATION share/applications COMPONENT system)
endif()
install(FILES ${PW_PACKAGE_FOLDER}/pipewright.xml DESTINATION share/mime/packages COMPONENT system)
