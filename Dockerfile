# The server of docs/guide/server.md in a container. Clients need the key; drives and sessions stay in the volume:
#   docker build -t kvdrive .
#   docker run -p 8000:8000 -e KVDRIVE_API_KEY=secret -v kvdrive:/data -v ./model:/model kvdrive --model /model
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN scripts/system_packages.sh build && \
    pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
RUN pip install --no-cache-dir -c /wheels/constraints.txt "$(ls /wheels/kvdrive-*.whl)[models,serve,gguf]" && \
    rm -r /wheels && \
    useradd --create-home kvdrive && \
    install -d -o kvdrive -m 700 /data
USER kvdrive
VOLUME /data
EXPOSE 8000
ENTRYPOINT ["kvdrive", "serve", "--host", "0.0.0.0", "--drive", "/data/drives"]
