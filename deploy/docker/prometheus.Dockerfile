# Debian's Prometheus.  From the repository's root:
#   docker build -f deploy/docker/prometheus.Dockerfile -t tandem-prometheus .
FROM debian:trixie-slim
LABEL org.opencontainers.image.title="Prometheus for Tandem" \
      org.opencontainers.image.description="Debian's Prometheus; configuration is mounted" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 tandem \
 && useradd --system --uid 10001 --gid tandem --no-create-home --home-dir /nonexistent tandem \
 && install -d -m 0700 -o tandem -g tandem /var/lib/tandem-prometheus
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["promtool", "check", "healthy", "--url=http://127.0.0.1:9090"]
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/tandem/prometheus/prometheus.yml", "--storage.tsdb.path=/var/lib/tandem-prometheus"]
