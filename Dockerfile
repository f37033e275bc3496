# One image for all that runs in a cluster: `sluice serve` and `sluice store init|check|info`.
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /src

# The locked dependencies first: this layer changes only with the lock.
COPY requirements.lock ./
RUN python3 -m venv /opt/sluice \
    && /opt/sluice/bin/python -m pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements.lock

COPY requirements-build.lock ./
RUN python3 -m venv /opt/build \
    && /opt/build/bin/python -m pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements-build.lock

COPY pyproject.toml LICENSE README.md ./
COPY apiserver ./apiserver
RUN /opt/build/bin/python -m hatchling build --target wheel --directory dist \
    && /opt/sluice/bin/python -m pip install --no-cache-dir --no-deps --no-index dist/*.whl \
    && /opt/sluice/bin/python -m pip uninstall --yes pip

FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
# Same path as in the build stage: a virtual environment cannot be moved.
COPY --from=build /opt/sluice /opt/sluice
ENV PATH=/opt/sluice/bin:$PATH PYTHONDONTWRITEBYTECODE=1
# A number, so that `runAsNonRoot` can be checked without reading /etc/passwd.
USER 65532:65532
# Where manifests/base lets it listen; every kubelet's port too, so control planes reach it through most firewalls.
EXPOSE 10250
ENTRYPOINT ["sluice"]
