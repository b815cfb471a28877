# Tandem gateway.  From the repository's root:
#   docker build -f deploy/docker/gateway.Dockerfile -t tandem-gateway .
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

FROM debian:trixie-slim
LABEL org.opencontainers.image.title="Tandem gateway" \
      org.opencontainers.image.description="gRPC, REST and OpenAI's API over one model and its workers" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      libgrpc++1.51t64 libspdlog1.15 \
      libcivetweb1 libcurl4t64 libprometheus-cpp-core1.0 libssl3t64 libxxhash0 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 tandem \
 && useradd --system --uid 10001 --gid tandem --no-create-home --home-dir /nonexistent tandem \
 && install -d -m 0700 -o tandem -g tandem /run/tandem
COPY --from=build /src/LICENSE /usr/share/doc/tandem/LICENSE
COPY --from=build /src/build/release/share/doc/tandem-gateway /usr/share/doc/tandem-gateway
COPY --from=build /src/build/release/bin/tandem-gateway /src/build/release/bin/tandem-health /usr/bin/
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=15m \
  CMD ["tandem-health", "unix:/run/tandem/gateway.sock"]
ENTRYPOINT ["tandem-gateway"]
