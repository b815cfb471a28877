# The public proxy: HAProxy with deploy/proxy's configuration.  From the repository's root:
#   docker build -f deploy/docker/proxy.Dockerfile -t tandem-proxy .
FROM debian:trixie-slim
LABEL org.opencontainers.image.title="Tandem proxy" \
      org.opencontainers.image.description="TLS, HTTP/2 and gRPC for the network, in front of a Tandem gateway" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends haproxy openssl curl \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 tandem \
 && useradd --system --uid 10001 --gid tandem --no-create-home --home-dir /nonexistent tandem
COPY deploy/proxy/haproxy.cfg /etc/haproxy/haproxy.cfg
COPY deploy/proxy/start /usr/bin/tandem-proxy
USER 10001:10001
# Streams are let end.
STOPSIGNAL SIGUSR1
HEALTHCHECK --interval=10s --timeout=5s --start-period=15m \
  CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8405/ready"]
ENTRYPOINT ["tandem-proxy"]
