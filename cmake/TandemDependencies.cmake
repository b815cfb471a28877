# Every external library the project links, found once.  `scripts/setup` installs them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(TANDEM_TOMLPLUSPLUS toml++/toml.h REQUIRED)  # headers; libtomlplusplus-dev
find_package(Boost 1.81 REQUIRED)  # headers: Asio and Beast
find_package(OpenSSL 3.0 REQUIRED)
find_package(CURL 7.88 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(civetweb REQUIRED)  # what it serves its pages with
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
# Formats of pictures, in tandem-image-decoder alone.
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
find_package(GIF REQUIRED)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)  # its tables of Unicode's classes; gRPC brings it
if(TANDEM_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  # An oracle for the tokenizer's ids, in one test program.
  pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
endif()
