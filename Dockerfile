# syntax=docker/dockerfile:1
# Static binaries in an empty image, run by a user without rights: Portreeve, and the Helm client, which it runs where it
# makes tenants' virtual clusters.
FROM golang:1.26-bookworm AS helm
WORKDIR /src
COPY testbed/helm .
RUN --mount=type=cache,target=/root/.cache --mount=type=cache,target=/go/pkg/mod \
    CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w" -o /helm helm.sh/helm/v4/cmd/helm

FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake musl-tools && rm -rf /var/lib/apt/lists/*
RUN rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
# Kernels for ARM have pages of 4, 16 or 64 KiB: the allocator has to be built for the largest that it may meet.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target="$(uname -m)-unknown-linux-musl" \
    && if [ "$(uname -m)" = aarch64 ]; then export JEMALLOC_SYS_WITH_LG_PAGE=16; fi \
    && cargo build --release --locked --package portreeve --target "$target" \
    && cp "target/$target/release/portreeve" /portreeve

FROM scratch
COPY --from=build /portreeve /portreeve
COPY --from=helm /helm /helm
# For registries of charts.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
ENV HELM=/helm
USER 65532:65532
ENTRYPOINT ["/portreeve"]
CMD ["controller"]
