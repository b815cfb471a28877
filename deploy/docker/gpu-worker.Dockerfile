# Tandem GPU worker.  From the repository's root:
#   docker build -f deploy/docker/gpu-worker.Dockerfile -t tandem-gpu-worker .
# The stage "build" is the same in every image's file, so that the engine builds it once for all.
FROM debian:trixie-slim AS build
WORKDIR /src
COPY scripts scripts
RUN scripts/setup && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt CMakePresets.json LICENSE ./
COPY cmake cmake
COPY proto proto
COPY shaders shaders
COPY services services
COPY tools tools
ARG TANDEM_COMMIT=""
RUN cmake --preset release -DTANDEM_BUILD_TESTS=OFF -DTANDEM_COMMIT="$TANDEM_COMMIT" \
 && scripts/build release programs notices \
 && strip build/release/bin/tandem*

# Drivers: Mesa's, for AMD, Intel and the CPU.  NVIDIA's is mounted by its container toolkit and wants
# the X11, GL and EGL libraries below, though nothing is ever drawn.
FROM debian:trixie-slim
LABEL org.opencontainers.image.title="Tandem GPU worker" \
      org.opencontainers.image.description="Runs stages of models on a Vulkan device" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      libgrpc++1.51t64 libspdlog1.15 \
      libcivetweb1 libprometheus-cpp-core1.0 libxxhash0 \
      libvulkan1 mesa-vulkan-drivers \
      libegl1 libgl1 libx11-6 libxext6 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 tandem \
 && useradd --system --uid 10001 --gid tandem --no-create-home --home-dir /nonexistent tandem \
 && install -d -m 0700 -o tandem -g tandem /run/tandem \
 && install -d -m 0700 -o tandem -g tandem /var/cache/tandem
COPY --from=build /src/LICENSE /usr/share/doc/tandem/LICENSE
COPY --from=build /src/build/release/share/doc/tandem-gpu-worker /usr/share/doc/tandem-gpu-worker
COPY --from=build /src/build/release/bin/tandem-gpu-worker /src/build/release/bin/tandem-health /usr/bin/
ENV XDG_CACHE_HOME=/var/cache MESA_SHADER_CACHE_DIR=/var/cache/tandem/mesa
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["tandem-health", "unix:/run/tandem/gpu.sock"]
ENTRYPOINT ["tandem-gpu-worker"]
