# One image for all that runs in a cluster: `sluice serve` and `sluice store init|check|info`. It holds Python, its libraries and the program,
# and neither shell nor package manager. What a build can be told: manifests/README.md, "The image".
FROM docker.io/library/debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f AS build
# A mirror of Debian's archive. pip reads PIP_INDEX_URL by itself; certificates of a proxy come as the secret `ca`, which no layer keeps.
ARG DEBIAN_MIRROR
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
COPY image/packages image/with-ca image/
RUN --mount=type=secret,id=ca,target=/run/secrets/ca,mode=0444 image/with-ca image/packages
WORKDIR /src

# The locked dependencies first: this layer changes only with the lock. The tools of the build lie apart: what is built has no pip.
COPY requirements.lock requirements-build.lock ./
RUN --mount=type=secret,id=ca,target=/run/secrets/ca,mode=0444 python3 -m venv /opt/build && python3 -m venv --without-pip /opt/sluice \
    && /image/with-ca /opt/build/bin/pip install --no-compile --require-hashes -r requirements-build.lock \
    && /image/with-ca /opt/build/bin/pip --python /opt/sluice/bin/python install --no-compile --require-hashes -r requirements.lock

COPY pyproject.toml LICENSE README.md ./
COPY apiserver ./apiserver
COPY kubecel ./kubecel
COPY kubetext ./kubetext
COPY sluice ./sluice
COPY structuredmerge ./structuredmerge
RUN /opt/build/bin/python -m hatchling build --target wheel --directory dist \
    && /opt/build/bin/pip --python /opt/sluice/bin/python install --no-compile --no-deps --no-index dist/*.whl

COPY image/root image/imports.py image/sbom.py /image/
RUN /image/root /root-of-image

# What the image is made of, as CycloneDX: `docker build --target sbom --output dist .`
FROM scratch AS sbom
COPY --from=build /root-of-image/usr/share/sluice/sbom.cdx.json /

FROM scratch
COPY --from=build /root-of-image /
# The modules are compiled already, and nothing can be written.
ENV PATH=/opt/sluice/bin:/usr/bin PYTHONDONTWRITEBYTECODE=1
# A number, so that `runAsNonRoot` can be checked without reading /etc/passwd.
USER 65532:65532
# Where manifests/base lets it listen; every kubelet's port too, so control planes reach it through most firewalls.
EXPOSE 10250
ENTRYPOINT ["sluice"]
