# The version is the project's, in CMakeLists.txt, and nowhere else: packages, images, programs, the
# OpenAPI document and metrics take it from there.  The commit is asked of git at each build and is
# compiled in one small file, so that a new commit compiles and links nothing else but the programs.
set(TANDEM_COMMIT "" CACHE STRING
  "The commit that is built.  Empty: asked of git at each build, 'unknown' where there is none")
set(commit_source ${CMAKE_BINARY_DIR}/generated/commit.cc)
add_custom_target(tandem_commit_source
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${commit_source}
          -DCOMMIT=${TANDEM_COMMIT} -P ${CMAKE_SOURCE_DIR}/cmake/WriteCommit.cmake
  BYPRODUCTS ${commit_source}
  COMMENT "" VERBATIM)
add_library(tandem_commit OBJECT ${commit_source})
target_include_directories(tandem_commit PRIVATE ${CMAKE_SOURCE_DIR})
set_target_properties(tandem_commit PROPERTIES UNITY_BUILD OFF)
add_dependencies(tandem_commit tandem_commit_source)
