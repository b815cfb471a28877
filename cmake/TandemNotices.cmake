# Third-party notices and a bill of materials (CycloneDX) for each package with programs, made by
# notices.py from the linked libraries.  Target `notices`, for packages and images; needs dpkg.
find_package(Python3 COMPONENTS Interpreter QUIET)
add_custom_target(notices ALL)
# tandem_notices(PACKAGE program...)
function(tandem_notices PACKAGE)
  set(folder ${CMAKE_BINARY_DIR}/share/doc/${PACKAGE})
  list(TRANSFORM ARGN PREPEND ${CMAKE_BINARY_DIR}/bin/ OUTPUT_VARIABLE files)
  file(GLOB_RECURSE locks ${CMAKE_SOURCE_DIR}/services/*/package-lock.json)
  add_custom_command(OUTPUT ${folder}/sbom.cdx.json ${folder}/THIRD-PARTY-NOTICES.txt
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/cmake/notices.py --source ${CMAKE_SOURCE_DIR}
            --build ${CMAKE_BINARY_DIR} --name ${PACKAGE} --version ${PROJECT_VERSION}
            --output ${folder} ${ARGN}
    DEPENDS ${ARGN} ${files} ${locks} ${CMAKE_SOURCE_DIR}/cmake/notices.py
    COMMENT "Writing the notices of ${PACKAGE}" VERBATIM)
  add_custom_target(notices_${PACKAGE} DEPENDS ${folder}/sbom.cdx.json)
  add_dependencies(notices notices_${PACKAGE})
  install(FILES ${folder}/sbom.cdx.json ${folder}/THIRD-PARTY-NOTICES.txt
    DESTINATION share/doc/${PACKAGE} COMPONENT ${PACKAGE})
endfunction()
tandem_notices(tandem-tools tandem tandem-health)
tandem_notices(tandem-gateway tandem-gateway tandem-image-decoder)
foreach(service tandem-gpu-worker tandem-loader tandem-npu-worker)
  if(TARGET ${service})
    tandem_notices(${service} ${service})
  endif()
endforeach()
