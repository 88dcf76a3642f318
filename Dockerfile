# clip-geometry on CPUs. Build: docker build -t clip-geometry .
# Run: docker run --rm -v "$PWD:/data" clip-geometry measure image.npy text.npy
FROM python:3.13-slim
ARG VERSION=
RUN pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir "clip-geometry[ship,explore]${VERSION:+==$VERSION}" \
    && useradd --create-home user
USER user
WORKDIR /data
ENTRYPOINT ["clip-geometry"]
CMD ["--help"]
