# Watchkeeper in a container: the wheel in its own environment, without compiler or sources, and not as root.
#   docker build -t watchkeeper .
#   docker run --rm --network host watchkeeper demo
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/watchkeeper \
 && /opt/watchkeeper/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

FROM python:3.13-slim
# Debian packages to add: "slurm-client munge" where Watchkeeper is to read and drain a Slurm cluster by its commands.
ARG EXTRA_PACKAGES=""
RUN if [ -n "$EXTRA_PACKAGES" ]; then \
      apt-get update && apt-get install -y --no-install-recommends $EXTRA_PACKAGES && rm -rf /var/lib/apt/lists/*; \
    fi \
 && useradd --system --uid 10001 --create-home --home-dir /var/lib/watchkeeper watchkeeper
COPY --from=build /opt/watchkeeper /opt/watchkeeper
# In a container loopback reaches nobody, so it listens on all of the container's addresses; ingest then needs a token.
ENV PATH=/opt/watchkeeper/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WATCHKEEPER_SERVER__HOST=0.0.0.0 \
    WATCHKEEPER_STORE__FOLDER=/var/lib/watchkeeper
USER 10001:10001
WORKDIR /var/lib/watchkeeper
VOLUME /var/lib/watchkeeper
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=4 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["watchkeeper"]
CMD ["serve"]
