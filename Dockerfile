# syntax=docker/dockerfile:1
# A static binary in an empty image, run by a user without rights.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake musl-tools && rm -rf /var/lib/apt/lists/*
RUN rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target="$(uname -m)-unknown-linux-musl" \
    && cargo build --release --locked --package portreeve --target "$target" \
    && cp "target/$target/release/portreeve" /portreeve

FROM scratch
COPY --from=build /portreeve /portreeve
USER 65532:65532
ENTRYPOINT ["/portreeve"]
CMD ["controller"]
