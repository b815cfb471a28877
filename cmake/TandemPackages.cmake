# Files installed beside the programs, and the Debian packages that CPack makes of it
# (scripts/package).  A component is a package; what each has of its own lies in deploy/debian/.
set(TANDEM_PACKAGES tandem tandem-common tandem-demo-model tandem-gateway tandem-gpu-worker
  tandem-loader tandem-tools)
if(TARGET tandem-npu-worker)
  list(APPEND TANDEM_PACKAGES tandem-npu-worker)
endif()
set(TANDEM_PACKAGE_RELEASE 1)
set(units ${CMAKE_SOURCE_DIR}/deploy/systemd)
set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
find_program(GZIP gzip REQUIRED)

# Manual pages, as the programs print them.
set(pages "")
function(tandem_manual PROGRAM SECTION PACKAGE)
  set(page ${CMAKE_BINARY_DIR}/share/man/${PROGRAM}.${SECTION})
  if(PROGRAM STREQUAL tandem)
    set(printed manual)
  else()
    set(printed --manual)
  endif()
  add_custom_command(OUTPUT ${page} ${page}.gz
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share/man
    COMMAND ${PROGRAM} ${printed} > ${page}
    COMMAND ${GZIP} -9nkf ${page}
    DEPENDS ${PROGRAM})
  install(FILES ${page}.gz DESTINATION share/man/man${SECTION} COMPONENT ${PACKAGE})
  set(pages ${pages} ${page} PARENT_SCOPE)
endfunction()
tandem_manual(tandem 1 tandem-tools)
tandem_manual(tandem-health 1 tandem-tools)
foreach(service tandem-gateway tandem-gpu-worker tandem-loader tandem-npu-worker)
  if(TARGET ${service})
    tandem_manual(${service} 8 ${service})
  endif()
endforeach()
add_custom_target(tandem_manuals ALL DEPENDS ${pages})

# All that is installed, for scripts/package to build.
add_custom_target(packaged)
add_dependencies(packaged notices programs tandem_share tandem_manuals tandem_descriptor_set)
foreach(target tandem_npu_emulated_package tandem_npu_emulated_xrt)
  if(TARGET ${target})
    add_dependencies(packaged ${target})
  endif()
endforeach()

# Units and what they read.
set(unit_folder lib/systemd/system)
install(FILES ${units}/tandem.target DESTINATION ${unit_folder} COMPONENT tandem-common)
install(FILES ${units}/sysusers.d/tandem.conf DESTINATION lib/sysusers.d COMPONENT tandem-common)
install(FILES ${units}/tmpfiles.d/tandem.conf DESTINATION lib/tmpfiles.d COMPONENT tandem-common)
foreach(entry loader:tandem-loader gateway:tandem-gateway gpu0:tandem-gpu-worker
    npu0:tandem-npu-worker)
  string(REPLACE ":" ";" entry ${entry})
  list(GET entry 0 config)
  list(GET entry 1 package)
  if(NOT package IN_LIST TANDEM_PACKAGES)
    continue()
  endif()
  file(GLOB unit ${units}/${package}.service ${units}/${package}@.service)
  install(FILES ${unit} DESTINATION ${unit_folder} COMPONENT ${package})
  install(FILES ${units}/etc/${config}.toml DESTINATION /etc/tandem COMPONENT ${package})
  file(WRITE ${CMAKE_BINARY_DIR}/debian/${package}/conffiles "/etc/tandem/${config}.toml\n")
endforeach()
if(TARGET tandem-npu-worker)
  install(FILES ${units}/npu-emulate.conf RENAME emulate.conf
    DESTINATION share/doc/tandem-npu-worker/examples COMPONENT tandem-npu-worker)
endif()
install(FILES ${debian}/models.README RENAME README DESTINATION share/tandem/models
  COMPONENT tandem-loader)
set(demo_model ${CMAKE_SOURCE_DIR}/models/demo2)
install(FILES ${demo_model}/demo2.Q8_0.gguf ${demo_model}/demo2.mmproj-F16.gguf DESTINATION share/tandem/models
  COMPONENT tandem-demo-model)
install(FILES ${demo_model}/shapes.png DESTINATION share/doc/tandem-demo-model COMPONENT tandem-demo-model)
# As in the repository, so that links between documents hold.
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  DESTINATION share/doc/tandem-common COMPONENT tandem-common)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION share/doc/tandem-common
  COMPONENT tandem-common FILES_MATCHING PATTERN "*.md" PATTERN "*.png")

# What every package has.
file(STRINGS ${debian}/changelog newest LIMIT_COUNT 1)
if(NOT newest MATCHES "^tandem \\(${PROJECT_VERSION}-${TANDEM_PACKAGE_RELEASE}\\)")
  message(FATAL_ERROR "deploy/debian/changelog begins with '${newest}': expected version "
    "${PROJECT_VERSION}-${TANDEM_PACKAGE_RELEASE}")
endif()
execute_process(COMMAND ${GZIP} -9nc ${debian}/changelog
  OUTPUT_FILE ${CMAKE_BINARY_DIR}/debian/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)
foreach(package ${TANDEM_PACKAGES})
  install(FILES ${debian}/copyright ${CMAKE_BINARY_DIR}/debian/changelog.Debian.gz
    DESTINATION share/doc/${package} COMPONENT ${package})
  if(EXISTS ${debian}/${package}.lintian-overrides)
    install(FILES ${debian}/${package}.lintian-overrides RENAME ${package}
      DESTINATION share/lintian/overrides COMPONENT ${package})
  endif()
endforeach()

# Control files.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_VENDOR "Tandem")
set(CPACK_PACKAGE_CONTACT "Tandem maintainers <maintainers@tandem.example>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL ${TANDEM_PACKAGES})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${TANDEM_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
  GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(version "${PROJECT_VERSION}-${TANDEM_PACKAGE_RELEASE}")

# tandem_package(NAME SUMMARY text LINES line... DEPENDS ... RECOMMENDS ... SUGGESTS ... [ALL])
# SUMMARY is the synopsis, LINES the description below it.  ALL: for every architecture.
function(tandem_package NAME)
  cmake_parse_arguments(ARG "ALL" "SUMMARY" "LINES;DEPENDS;RECOMMENDS;SUGGESTS" ${ARGN})
  if(NOT NAME IN_LIST TANDEM_PACKAGES)
    return()
  endif()
  string(TOUPPER ${NAME} upper)
  macro(set_field field value)
    set(CPACK_DEBIAN_${upper}_${field} "${value}" PARENT_SCOPE)
  endmacro()
  list(JOIN ARG_LINES "\n" description)
  list(JOIN ARG_DEPENDS ", " depends)
  list(JOIN ARG_RECOMMENDS ", " recommends)
  list(JOIN ARG_SUGGESTS ", " suggests)
  set_field(PACKAGE_NAME ${NAME})
  set_field(DESCRIPTION "${ARG_SUMMARY}\n${description}")
  set_field(PACKAGE_DEPENDS "${depends}")
  set_field(PACKAGE_RECOMMENDS "${recommends}")
  set_field(PACKAGE_SUGGESTS "${suggests}")
  set_field(PACKAGE_SHLIBDEPS ON)
  if(ARG_ALL)
    set_field(PACKAGE_ARCHITECTURE all)
    set_field(PACKAGE_SHLIBDEPS OFF)
  endif()
  file(GLOB scripts ${debian}/${NAME}/*)
  if(EXISTS ${CMAKE_BINARY_DIR}/debian/${NAME}/conffiles)
    list(APPEND scripts ${CMAKE_BINARY_DIR}/debian/${NAME}/conffiles)
  endif()
  set_field(PACKAGE_CONTROL_EXTRA "${scripts}")
endfunction()

set(about "Tandem serves Gemma 3 on machines with an AMD NPU and a GPU, both working"
  "on one model, as a small cluster of services.")
tandem_package(tandem ALL SUMMARY "language models on NPU and GPU together (metapackage)"
  LINES ${about} "This metapackage brings all of them, to run on one machine."
  DEPENDS "tandem-gateway (>= ${version})" "tandem-gpu-worker (>= ${version})"
          "tandem-loader (>= ${version})" "tandem-tools (>= ${version})"
  RECOMMENDS "tandem-npu-worker (>= ${version})" "tandem-demo-model (>= ${version})")
tandem_package(tandem-common ALL SUMMARY "user, systemd target and documents of Tandem"
  LINES ${about} "This package has what its services share."
  DEPENDS "init-system-helpers (>= 1.54~)" "systemd | systemd-standalone-sysusers | systemd-sysusers"
  SUGGESTS "tandem")
tandem_package(tandem-demo-model ALL SUMMARY "small language model to try Tandem with"
  LINES ${about} "This package has the model of 18 MB that comes with it: it knows capitals,"
        "sums, lists and JSON, calls tools and reads pictures of shapes and words."
  SUGGESTS "tandem")
tandem_package(tandem-gateway SUMMARY "gateway of Tandem, for clients of language models"
  LINES ${about} "This is the one that clients talk to, by gRPC, by OpenAI's and Ollama's HTTP"
        "APIs and by a chat page. It makes tokens of text, batches and samples."
  DEPENDS "tandem-common (>= ${version})"
  RECOMMENDS "tandem-loader (>= ${version})" "tandem-gpu-worker (>= ${version})"
  SUGGESTS "tandem-npu-worker")
tandem_package(tandem-gpu-worker SUMMARY "GPU worker of Tandem, over Vulkan"
  LINES ${about} "This one runs a model's matrix products, and attention where there is no"
        "NPU, on any GPU with Vulkan 1.3."
  DEPENDS "tandem-common (>= ${version})" RECOMMENDS "mesa-vulkan-drivers | vulkan-icd")
tandem_package(tandem-loader SUMMARY "loader of Tandem, for models and their weights"
  LINES ${about} "This one reads GGUF and safetensors, packs the weights once into shared"
        "memory, and hands them to the workers."
  DEPENDS "tandem-common (>= ${version})" SUGGESTS "tandem-demo-model")
tandem_package(tandem-npu-worker SUMMARY "NPU worker of Tandem, over XRT"
  LINES ${about} "This one runs attention on an AMD NPU, or on an emulated one to try it out."
  DEPENDS "tandem-common (>= ${version})")
tandem_package(tandem-tools SUMMARY "command line of Tandem, for language models"
  LINES ${about} "This package has 'tandem': pull, run, serve, chat, generate, status, bench,"
        "tune, inspect, convert, doctor, and a supervisor of one's own cluster."
  RECOMMENDS "tandem-gateway" "tandem-gpu-worker" "tandem-loader" "ca-certificates")
include(CPack)
