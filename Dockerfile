# A static binary in an image that holds nothing else but the authorities that TLS trusts and the time zones.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/binlogmq ./cmd/binlogmq
# The folder of cursors, writable by the user that the program runs as.
RUN mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /usr/local/go/lib/time/zoneinfo.zip
ENV ZONEINFO=/usr/local/go/lib/time/zoneinfo.zip
COPY --from=build /out/binlogmq /usr/bin/binlogmq
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
WORKDIR /
VOLUME /data
EXPOSE 8088
ENTRYPOINT ["/usr/bin/binlogmq"]
CMD ["run", "-c", "/etc/binlogmq/config.yaml"]
